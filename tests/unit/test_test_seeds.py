"""The seed of a session decides every number that tests draw."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
DRAWS = """
import random

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, strategies

import sharpwave as sw

at_import = torch.rand(1).item()


@pytest.fixture(scope="module")
def shared():
    return torch.rand(1).item()


@pytest.mark.parametrize("case", range(2))
def test_draws(shared, case):
    space = gymnasium.spaces.Box(0, 1, (1,))
    env = sw.make_vec_env("CartPole-v1", 1)
    numbers = [at_import, shared, random.random(), np.random.rand(), torch.rand(1).item()]
    numbers += [space.sample().item(), env.reset()[0].sum(), sw.DQN("CartPole-v1").config.seed]
    print("NUMBERS", case, *(float(number) for number in numbers))
    assert case == 0


seen = []


@given(strategies.floats(0, 1))
def test_examples(number):
    seen.append(number)


def test_seen():
    print("EXAMPLES", seen)
    assert not seen
"""
pytestmark = pytest.mark.long


def run(folder: Path, seed: str | None, *options: str) -> str:
    """Output of pytest over tests that print what they draw."""
    (folder / "test_draws.py").write_text(DRAWS)
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment["CI"] = "true"  # where Hypothesis would fix its examples by itself
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rP",
        "-p",
        "tests.conftest",
        "--import-mode=importlib",
    ]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}", *options]
    ended = subprocess.run(
        [*command, str(folder)],
        cwd=ROOT,
        env=environment | ({} if seed is None else {VARIABLE: seed}),
        capture_output=True,
        text=True,
    )
    return ended.stdout + ended.stderr


def drawn(output: str) -> list[str]:
    lines = sorted(set(re.findall(r"^(?:NUMBERS|EXAMPLES) .*$", output, re.MULTILINE)))
    assert len(lines) == 3, output
    return lines


def test_a_seed_gives_its_numbers_and_another_one_others(tmp_path: Path) -> None:
    one, other = (drawn(run(tmp_path, seed)) for seed in ("1", "2"))
    assert drawn(run(tmp_path, "1")) == one
    assert one[0] != other[0]  # hypothesis always tries 0 and 1 among its examples
    for line, changed in zip(one[1:], other[1:], strict=True):
        assert not set(line.split()[2:]) & set(changed.split()[2:])
    # Two tests share what the module and its fixture drew, and nothing else.
    first, second = (line.split() for line in one[1:])
    assert first[2:4] == second[2:4]
    assert not set(first[4:]) & set(second[4:])


@pytest.mark.parametrize("processes", [(), ("-n", "2", "--dist=loadfile")])
def test_the_drawn_seed_is_named_and_brings_a_failure_back(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    output = run(tmp_path, None, *processes)
    named = re.findall(rf"{VARIABLE}=(\d+)", output)
    assert len(named) == 3  # in the header and with each of two failures
    assert len(set(named)) == 1
    assert drawn(run(tmp_path, named[0])) == drawn(output)
    assert drawn(run(tmp_path, None)) != drawn(output)


def test_a_seed_that_is_no_number_is_refused(tmp_path: Path) -> None:
    assert f"{VARIABLE} must be an integer of at least 0, got 'one'" in run(tmp_path, "one")
