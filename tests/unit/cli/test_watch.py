"""`sharpwave watch`: an address of this machine, until it is interrupted."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from sharpwave.cli import main
from tests.processes import interruptible
from tests.unit.pages.watch.folders import write_run
from tests.waiting import LONG


@pytest.mark.long
def test_runs_are_shown_until_it_is_interrupted(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "first", [1.0, 2.0])
    with interruptible("watch", cwd=tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/)\?token=\S+ shows the runs in runs ", line)
        assert found is not None, line
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with browser.open(line.split()[0], timeout=LONG) as answer:
            assert answer.url == found[1]
        with browser.open(found[1] + "runs", timeout=LONG) as answer:
            assert [run["id"] for run in json.load(answer)] == ["first"]
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=LONG)
    assert (process.returncode, said, complaints) == (0, "stopped\n", "")


def test_a_folder_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path / "runs")]) == 2
    assert "runs" in capsys.readouterr().err


def test_a_port_that_cannot_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path), "--port", "70000"]) == 2
    assert "port must be from 0 to 65535, got 70000" in capsys.readouterr().err
