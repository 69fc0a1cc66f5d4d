"""A run in a process of its own, which may be interrupted at any moment."""

from __future__ import annotations

import json
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch

import sharpwave as sw
from sharpwave.runs.recorder import RunRecorder
from sharpwave.storage.run_folder import RunFolder
from tests.durability import processes
from tests.envs import resumable

STEPS_PER_UPDATE = 32
TOTAL = 40 * STEPS_PER_UPDATE
NOT_REPEATABLE = ("seconds", "sps")

ENVS: dict[str, Any] = {"resumable": resumable, "ordinary": "CartPole-v1"}


class Hold(sw.Callback):
    """Lets a run wait at an update for as long as a file is there."""

    def __init__(self, file: Path, update: int) -> None:
        self.file, self.update = file, update

    def on_train_batch(self, *, algo: Any, **_: Any) -> None:
        while algo.updates == self.update and self.file.exists():
            time.sleep(0.002)


class Slowly(sw.Callback):
    """Gives others time to interrupt; the run itself is the same."""

    def __init__(self, seconds: float = 0.005) -> None:
        self.seconds = seconds

    def on_train_batch(self, **_: Any) -> None:
        time.sleep(self.seconds)


def make(env: str) -> sw.PPO:
    return sw.PPO(
        ENVS[env],
        n_envs=2,
        n_steps=16,
        batch_size=16,
        n_epochs=1,
        hidden=(8,),
        normalize_obs=True,
        seed=3,
    )


def load(folder: Path, env: str) -> sw.PPO:
    return sw.PPO.from_checkpoint(RunFolder(folder).latest_checkpoint, ENVS[env])


def go_on(folder: Path, env: str, signals: bool) -> None:
    """Begin the run of a folder, or go on with it, to its end.

    Args:
        folder: Of the run.
        env: Its name in `ENVS`.
        signals: Whether signals end it in order, for which it waits half-way while the file
            `hold_of(folder)` is there; otherwise it is saved at every fourth update.
    """
    begun = RunFolder(folder).latest_checkpoint.exists()
    algo = load(folder, env) if begun else make(env)
    total = None if begun else TOTAL
    if signals:
        hold = Hold(hold_of(folder), TOTAL // STEPS_PER_UPDATE // 2)
        algo.train(total, callbacks=[Slowly(), hold], run_dir=folder, resume=True)
    else:
        often = RunRecorder(folder, checkpoint_freq=4 * STEPS_PER_UPDATE, report=False, resume=True)
        algo.train(total, callbacks=[Slowly(), often])


def hold_of(folder: Path) -> Path:
    """The file at which a run waits to be interrupted."""
    return folder.with_name(f"{folder.name}.hold")


processes.preload("sharpwave.nn", "sharpwave.pages.report", "matplotlib.pyplot", __name__)


def start(folder: Path, env: str = "resumable", *, signals: bool = False) -> ForkServerProcess:
    """`go_on` in a process that has everything imported."""
    return processes.start(go_on, folder, env, signals)


def wait_for_rows(folder: Path, n: int, process: ForkServerProcess) -> None:
    """Until n more updates are in the folder."""
    target = len(rows_of(folder)) + n
    while len(rows_of(folder)) < target and process.is_alive():
        time.sleep(0.002)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics, but for how long it took."""
    file = RunFolder(folder).metrics_jsonl
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k not in NOT_REPEATABLE} for row in rows]


def weights_of(algo: sw.PPO) -> Any:
    return torch.cat([leaf.detach().flatten() for leaf in algo.policy.parameters()]).numpy()
