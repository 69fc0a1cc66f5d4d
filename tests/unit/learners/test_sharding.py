"""Several processes learn what one does: weights, checkpoints, callbacks, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.cli.learners import launch
from sharpwave.core.ranks import Ranks
from sharpwave.storage.checkpoints import CheckpointReader, read_checkpoint
from tests.unit.learners import sharded_program as program

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


Case = tuple[str, Path, str, str, int]


def run(n: int, *cases: Case) -> int:
    """The exit status of so many processes that do some cases of the program, one after another."""
    for _, folder, *_ in cases:
        folder.mkdir(exist_ok=True)
    return launch(n, ["-m", program.__name__, json.dumps(cases, default=str)])


def run_here(case: str, folder: Path, *arguments: Any) -> None:
    """The same in this process, which is then the only one."""
    folder.mkdir(exist_ok=True)
    program.CASES[case](folder, *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which processes leave their results."""
    return tmp_path_factory.mktemp("sharding")


@pytest.fixture(scope="module")
def two(folder: Path) -> Path:
    """Results of two processes started once, since that takes longer than their work."""
    run_here("record", folder / "to_2", "grpo", "Llama", 2)
    assert not run(
        2,
        ("learn", folder / "learn_2", "grpo", "Llama", 3),
        ("record", folder / "to_2", "grpo", "Llama", 4),
        ("record", folder / "told", "dpo", "Llama", 4),
    )
    return folder


@pytest.fixture(scope="module")
def three(folder: Path) -> Path:
    """The results of three processes, whose shards are of unequal lengths."""
    assert not run(
        3,
        ("learn", folder / "learn_3", "dpo", "transformer", 3),
        ("record", folder / "to_1", "grpo", "Llama", 2),
    )
    run_here("record", folder / "to_1", "grpo", "Llama", 4)
    return folder


def difference(path: Path, other: Path) -> float:
    """The largest difference between two files of weights."""
    ours, theirs = torch.load(path), torch.load(other)
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


@pytest.mark.parametrize(
    ("algorithm", "model", "n"),
    [("grpo", "Llama", 2), ("dpo", "transformer", 3)],
)
def test_processes_learn_what_one_learns(
    request: pytest.FixtureRequest, tmp_path: Path, algorithm: str, model: str, n: int
) -> None:
    """With shards of unequal lengths, an unequal number of rows, and micro-batches."""
    together: Path = request.getfixturevalue({2: "two", 3: "three"}[n]) / f"learn_{n}"
    run_here("learn", tmp_path, algorithm, model, 3)
    assert difference(tmp_path / "weights.pt", together / "weights.pt") <= 1e-6
    one = json.loads((tmp_path / "metrics0.json").read_text())
    for rank in range(n):
        every = json.loads((together / f"metrics{rank}.json").read_text())
        for ours, theirs in zip(one, every, strict=True):
            assert theirs == pytest.approx(ours, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 2)])
def test_a_run_goes_on_with_another_number_of_processes(
    request: pytest.FixtureRequest, tmp_path: Path, before: int, after: int
) -> None:
    left: Path = request.getfixturevalue({2: "two", 3: "three"}[max(before, after)])
    run_here("record", tmp_path, "grpo", "Llama", 4)
    found = left / f"to_{after}" / "weights4.pt"
    assert difference(found, tmp_path / "weights4.pt") <= 1e-6
    first = torch.load(left / f"to_{after}" / "weights2.pt")
    assert max(float((x - torch.load(found)[k]).abs().max()) for k, x in first.items()) > 1e-5


def test_the_first_process_tells_and_writes(two: Path) -> None:
    told = two / "told"
    assert (told / "told0.txt").read_text() == "xxxx"
    assert not (told / "told1.txt").exists()
    folder = told / "run"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 4
    assert len((folder / "evaluations.jsonl").read_text().splitlines()) == 2
    check_files(folder / "checkpoints" / "latest.safetensors", told / "weights4.pt")


def check_files(path: Path, weights: Path) -> None:
    """Every process wrote a part, in which tensors are whole to whoever reads them."""
    assert len(list(path.parent.glob(f"{path.name}.part-*-of-00002-*"))) == 2
    prefix = "state.learner.networks.model."
    with CheckpointReader(path) as checkpoint:
        checkpoint.verify()
        assert not any("@" in name for name in checkpoint.names)
        for name, tensor in torch.load(weights).items():
            assert checkpoint.shape(prefix + name) == tensor.shape
            assert torch.equal(checkpoint.tensor(prefix + name), tensor)
            target = torch.zeros_like(tensor)
            checkpoint.copy_to(prefix + name, target)
            assert torch.equal(target, tensor)
    model = read_checkpoint(path)[1]["learner"]["networks"]["model"]
    tied = [model[f"{name}.weight"].ctypes.data for name in ("lm_head", "model.embed_tokens")]
    assert tied[0] == tied[1]


def test_when_one_process_dies_the_others_end(tmp_path: Path) -> None:
    assert run(2, ("die", tmp_path, "grpo", "transformer", 50)) != 0
    assert (tmp_path / "began0").exists()
    ended = json.loads((tmp_path / "ended.json").read_text())
    assert ended["seconds"] < 60
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"


def test_a_command_is_carried_out_together(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command = ["-m", "sharpwave", "train", "grpo", "--task", "copy4", "--total-timesteps", "2"]
    done = subprocess.run(
        [*launcher, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (folder,) = (tmp_path / "runs").iterdir()
    assert done.stdout.count("run folder:") == 1
    assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
    assert len(list((folder / "checkpoints").glob("latest.safetensors.part-*"))) == 2


def test_processes_can_learn_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Ranks.join("none").is_alone
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Ranks.join("auto").is_alone


def test_shares_are_all_of_it() -> None:
    shares = [Ranks(rank, 3).share(7) for rank in range(3)]
    assert [row for share in shares for row in share] == list(range(7))
    assert {len(share) for share in shares} == {2, 3}
