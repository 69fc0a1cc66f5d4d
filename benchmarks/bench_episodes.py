"""Episodes on disk: storing steps, and loading them at every level."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from data import ACT_DIM, OBS_DIM
from harness import OURS, Operation, Ratio, Row

PEER = "memmap-rb"
EPISODES = 1000
STEPS = 1000
STORED = 100
WARM_UP = 60
FIELDS = {
    "obs": ("float", OBS_DIM),
    "action": ("float", ACT_DIM),
    "reward": "float",
    "terminated": "bool",
}
META_FIELDS = {"task": "int"}
N_STEP = {
    "n_steps": 5,
    "current_fields": ("obs", "action"),
    "next_fields": ("obs",),
    "sequence_fields": ("reward", "terminated"),
}


def rows() -> Iterator[Row]:
    folder = Path(tempfile.mkdtemp(prefix="episodes-"))
    try:
        folders = Folders(folder)
        yield store(folder)
        yield open_folder(folders)
        yield first_batch(folders)
        yield loading(folders, "timestep batch 256", 256, 150, timestep_level=True, shuffle=True)
        yield loading(folders, "n-step(5) batch 256", 256, 150, **N_STEP, shuffle=True)
        yield windows(folders)
        yield loading(folders, f"trajectories 16 x {STEPS}", 16, 2)
    finally:
        shutil.rmtree(folder)


def ours() -> Any:
    from sharpwave.episodes import EpisodeBuffer

    return EpisodeBuffer


def theirs() -> Any:
    from memmap_replay_buffer import ReplayBuffer

    return ReplayBuffer


class Folders:
    """A million steps in a folder of each contender, stored when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def ours(self) -> Any:
        """Opens ours."""
        return self._filled("ours", ours())

    @cached_property
    def theirs(self) -> Any:
        """Opens theirs."""
        return self._filled("theirs", theirs(), flush_every_store_step=0)

    def _filled(self, name: str, buffer_class: Any, **options: Any) -> Any:
        rng = np.random.default_rng(0)
        path = str(self.folder / name)
        buffer = buffer_class(path, EPISODES, STEPS, FIELDS, META_FIELDS, **options)
        for number in range(EPISODES):
            buffer.store_episode(
                obs=rng.standard_normal((STEPS, OBS_DIM), dtype=np.float32),
                action=rng.standard_normal((STEPS, ACT_DIM), dtype=np.float32),
                reward=rng.standard_normal(STEPS, dtype=np.float32),
                terminated=np.arange(STEPS) == STEPS - 1,
                task=np.int32(number % 4),
            )
        buffer.flush()
        return partial(buffer_class.from_folder, path, read_only=True)


def store(folder: Path) -> Row:
    rng = np.random.default_rng(0)
    obs = rng.standard_normal(OBS_DIM, dtype=np.float32)
    action = rng.standard_normal(ACT_DIM, dtype=np.float32)

    def storing(name: str, buffer_class: Any, **options: Any) -> Operation:
        path = str(folder / f"stored by {name}")
        buffer = buffer_class(path, 50, STORED, FIELDS, META_FIELDS, circular=True, **options)
        put = buffer.store

        def episode() -> None:
            with buffer.one_episode(task=1):
                for _ in range(STORED):
                    put(obs=obs, action=action, reward=1.0, terminated=False)

        return episode

    return Row(
        "store one step",
        {
            OURS: lambda: storing(OURS, ours()),
            PEER: lambda: storing(PEER, theirs(), flush_every_store_step=0),
        },
        [Ratio(PEER, 50.0)],
        ops_per_call=STORED,
        note="ours is safe against the death of the process, memmap-rb is told not to flush",
    )


def open_folder(folders: Folders) -> Row:
    return Row(
        "open a folder of 1M steps",
        {OURS: lambda: folders.ours, PEER: lambda: folders.theirs},
        [Ratio(PEER, 1.0)],
    )


def first_batch(folders: Folders) -> Row:
    def loading_once(buffer: Any) -> Operation:
        return lambda: next(iter(buffer.dataloader(256, timestep_level=True)))

    return Row(
        "first batch of 256 steps of 1M",
        {
            OURS: lambda: loading_once(folders.ours()),
            PEER: lambda: loading_once(folders.theirs()),
        },
        [Ratio(PEER, 20.0)],
        note="with the making of the loader",
    )


def for_ever(loader: Any) -> Operation:
    """The next batch of a loader, epoch after epoch, once the pages it reads are mapped."""

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    endless = batches()
    for _ in range(WARM_UP):
        next(endless)
    return partial(next, endless)


def loading(
    folders: Folders, operation: str, batch_size: int, target: float, **options: Any
) -> Row:
    def make(opened: Callable[[], Any]) -> Operation:
        return for_ever(opened()().dataloader(batch_size, **options))

    return Row(
        f"{operation} of 1M steps",
        {OURS: lambda: make(lambda: folders.ours), PEER: lambda: make(lambda: folders.theirs)},
        [Ratio(PEER, target)],
        note="torch tensors, no workers",
    )


def windows(folders: Folders) -> Row:
    def theirs_of_50() -> Operation:
        from memmap_replay_buffer import ReplayDatasetTimeWindow
        from torch.utils.data import DataLoader

        return for_ever(DataLoader(ReplayDatasetTimeWindow(folders.theirs(), 50), batch_size=16))

    return Row(
        "windows 16 x 50 of 1M steps",
        {
            OURS: lambda: for_ever(folders.ours().dataloader(16, window_length=50)),
            PEER: theirs_of_50,
        },
        [Ratio(PEER, 20.0)],
        note="torch tensors, no workers",
    )
