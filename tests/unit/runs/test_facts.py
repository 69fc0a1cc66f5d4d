import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sharpwave.runs.facts import environment_facts, git_facts


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_facts_name_versions_machine_and_command() -> None:
    facts = environment_facts()
    assert facts["numpy"] == np.__version__
    assert facts["python"].count(".") == 2
    assert facts["cpu"]
    assert facts["cpu_count"] == os.cpu_count()
    assert json.loads(json.dumps(facts)) == facts


def test_repository_gives_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-b", "work")
    assert git_facts(tmp_path) is None, "there is no commit yet"
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-m", "first")
    clean = {
        "commit": git(tmp_path, "rev-parse", "HEAD"),
        "branch": "work",
        "dirty": False,
        "diff_stat": "",
    }
    assert git_facts(tmp_path) == clean
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "metrics.csv").write_text("step\n")
    assert git_facts(tmp_path) == clean, "files that git does not know are no change"
    (tmp_path / "a.py").write_text("2\n")
    facts = git_facts(tmp_path / "runs")
    assert facts is not None
    assert facts["dirty"] is True
    assert "a.py" in facts["diff_stat"]


def test_without_a_repository_or_git_there_are_no_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_facts(tmp_path) is None
    assert git_facts(tmp_path / "missing") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_facts(Path.cwd()) is None
