"""The script that judges a change, with a `make` that only notes how it was called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKE = """#!/usr/bin/env bash
echo "$* seed=${SHARPWAVE_TEST_SEED-none}" >> "$CALLS"
n=$(grep -c "^$BAD " "$CALLS")
if [ "$1" = "$BAD" ] && [ "$n" -gt "$PASSES" ] && [ "$n" -le "$TIMES" ]; then
  echo "$COMPLAINT"
  exit 2
fi
"""
STEPS = [
    *("check", "docs", "test-oldest", "test", "test-long"),
    "test ARGS=tests/contract tests/property",
]
BROKE_DOWN = "INTERNALERROR> OSError: cannot send"
NOTICE = "SECOND time"


def judge(
    folder: Path, bad: str, complaint: str, times: int, passes: int = 0
) -> tuple[int, list[str], str]:
    """Exit status, what was made and with which seed, and what was printed."""
    for name, script in {"make": MAKE, "chromium": "#!/bin/sh\n"}.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "BAD": bad,
        "COMPLAINT": complaint,
        "TIMES": str(times),
        "PASSES": str(passes),
    }
    ended = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run")], env=environment, capture_output=True, text=True
    )
    return ended.returncode, (folder / "calls").read_text().splitlines(), ended.stdout


def steps(calls: list[str]) -> list[str]:
    return [call.rpartition(" seed=")[0] for call in calls]


def test_every_suite_runs_once_and_one_of_them_without_the_fixed_seed(tmp_path: Path) -> None:
    status, calls, printed = judge(tmp_path, "nothing", "", 0)
    assert status == 0
    assert steps(calls) == STEPS
    seeds = [call.rpartition("=")[2] for call in calls]
    assert seeds[-1] == "none"
    assert len(set(seeds[:-1])) == 1
    assert seeds[0].isdecimal()
    assert NOTICE not in printed


def test_new_numbers_that_fail_are_said_and_do_not_judge(tmp_path: Path) -> None:
    complaint = "FAILED tests/a.py::test_b - assert 1"
    status, calls, printed = judge(tmp_path, "test", complaint, 2, passes=1)
    assert status == 0
    assert steps(calls) == STEPS
    assert complaint in printed
    assert "NOTICE: numbers that no run had tried before" in printed


@pytest.mark.parametrize("bad", ["check", "docs", "test-oldest", "test", "test-long"])
@pytest.mark.parametrize(
    "complaint",
    ["FAILED tests/a.py::test_b - assert 1", f"{BROKE_DOWN}\nFAILED tests/a.py::test_b", "Killed"],
)
def test_a_suite_that_failed_is_not_run_again(tmp_path: Path, bad: str, complaint: str) -> None:
    status, calls, printed = judge(tmp_path, bad, complaint, 1)
    assert status != 0
    assert steps(calls) == STEPS[: STEPS.index(bad) + 1]
    assert NOTICE not in printed


@pytest.mark.parametrize("bad", ["test", "test-long"])
def test_a_runner_that_broke_down_is_asked_once_more_and_it_is_said(
    tmp_path: Path, bad: str
) -> None:
    status, calls, printed = judge(tmp_path, bad, BROKE_DOWN, 1)
    assert status == 0
    again = STEPS.index(bad) + 1
    assert steps(calls) == [*STEPS[:again], bad, *STEPS[again:]]
    assert f"`make {bad}` runs a SECOND time" in printed


def test_a_runner_that_broke_down_twice_fails(tmp_path: Path) -> None:
    status, calls, printed = judge(tmp_path, "test-long", BROKE_DOWN, 2)
    assert status != 0
    assert steps(calls) == [*STEPS[: STEPS.index("test-long") + 1], "test-long"]
    assert printed.count(NOTICE) == 1
