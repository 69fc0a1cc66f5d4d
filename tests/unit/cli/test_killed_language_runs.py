"""A language run that is killed goes on as if it had not been, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sharpwave.storage.checkpoints import as_arrays, read_checkpoint
from sharpwave.storage.run_folder import RunFolder

UPDATES = 30
KILLER = """
import os
import signal

import sharpwave as sw
from sharpwave.learners.model_optimizer import ModelOptimizer
from sharpwave.llm.model import TransformerModel

where, _, when = os.environ.get("KILL", "nowhere:0").partition(":")


def deadly(place, function):
    calls = 0

    def called(*args, **kwargs):
        nonlocal calls
        calls += 1
        if place == where and calls == int(when):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return called


TransformerModel.decode = deadly("decode", TransformerModel.decode)
ModelOptimizer.step = deadly("step", ModelOptimizer.step)
score = deadly("score", sw.llm.TASKS["copy4"].reward)


def reward(prompts, completions):
    return score(prompts, completions)
"""
COMMANDS = {
    "grpo": ["--reward", "killer:reward", "--n-prompts", "2", "--group-size", "4"],
    "dpo": ["--import", "killer", "--n-pairs", "4"],
}
AGAIN = {"grpo": ["--reward", "killer:reward"], "dpo": ["--import", "killer"]}


def sharpwave(folder: Path, *arguments: str, kill: str = "nowhere:0") -> int:
    (folder / "killer.py").write_text(KILLER)
    done = subprocess.run(
        [sys.executable, "-m", "sharpwave", *arguments, "--quiet"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "KILL": kill},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def train(folder: Path, algorithm: str, kill: str = "nowhere:0") -> int:
    lengths = ["--total-timesteps", str(UPDATES), "--seed", "5"]
    evaluations = ["--eval-size", "3", "--eval-freq", "7"]
    command = ["train", algorithm, "--task", "copy4", "--run-dir", "run", *lengths, *evaluations]
    return sharpwave(folder, *command, *COMMANDS[algorithm], kill=kill)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that nothing has interrupted."""
    found = {}
    for algorithm in COMMANDS:
        found[algorithm] = tmp_path_factory.mktemp(algorithm)
        assert train(found[algorithm], algorithm) == 0
    return found


def leaves(state: Any, name: str = "state") -> dict[str, Any]:
    """All that a state holds, by name."""
    if isinstance(state, dict):
        both = [leaves(inner, f"{name}.{key}") for key, inner in state.items() if key != "timings"]
        return {key: value for one in both for key, value in one.items()}
    if isinstance(state, list | tuple):
        return leaves(dict(enumerate(state)), name)
    return {name: state}


def rows(file: Path) -> list[dict[str, Any]]:
    """The lines of a file, without what a clock has measured."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("sps", "seconds")} for row in found]


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "kill"),
    [
        ("grpo", "decode:86"),  # in sampling: three calls for an update or an evaluation
        ("grpo", "score:29"),  # in the reward, which evaluations ask too
        ("grpo", "step:28"),  # in the update; some are skipped, for want of a spread
        ("grpo", "score:4"),  # before there is a checkpoint
        ("dpo", "step:26"),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(
    algorithm: str, kill: str, whole: dict[str, Path], tmp_path: Path
) -> None:
    assert train(tmp_path, algorithm, kill) == -signal.SIGKILL
    reached = RunFolder(tmp_path / "run").metrics().get("step", np.zeros(1)).max()
    assert reached < UPDATES
    assert sharpwave(tmp_path, "resume", "run", *AGAIN[algorithm]) == 0
    one, other = (
        leaves(as_arrays(read_checkpoint(path / "run/checkpoints/latest.safetensors")[1]))
        for path in (whole[algorithm], tmp_path)
    )
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.array_equal(np.asarray(value), np.asarray(other[name])), name
    for name in ("metrics.jsonl", "evaluations.jsonl", "samples.jsonl"):
        files = [path / "run" / name for path in (whole[algorithm], tmp_path)]
        if files[0].exists():
            assert rows(files[0]) == rows(files[1])
    resumed = RunFolder(tmp_path / "run").environment.get("resumed_at")
    assert resumed == (None if kill == "score:4" else [25])
