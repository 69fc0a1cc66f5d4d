"""Writers of replay buffers that are killed at any moment lose at most the step in flight."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.durability.crash import CLOSING, OPENING, Crashes
from tests.durability.processes import preload
from tests.durability.replay_model import Kind
from tests.durability.replay_script import Replay

preload(__name__)


@pytest.mark.parametrize(
    ("kind", "folders"),
    [
        (Kind("flat", prioritized=True), 1),
        (Kind("frames", n_envs=2, prioritized=True), 1),
        *[
            pytest.param(kind, 4, marks=pytest.mark.slow)
            for kind in (
                Kind("flat", prioritized=True),
                Kind("flat", n_envs=2),
                Kind("flat", n_envs=1, prioritized=True, durability="power"),
                Kind("frames", n_envs=2, prioritized=True),
                Kind("frames", n_envs=3, continues=False),
            )
        ],
    ],
    ids=str,
)
def test_a_writer_killed_again_and_again_leaves_exactly_what_it_committed(
    kind: Kind, folders: int, memory_path: Path
) -> None:
    for number in range(folders):
        seed = int.from_bytes(os.urandom(4), "little")
        crashes = Crashes(Replay(kind), memory_path / str(number), seed)
        for _ in range(3 if folders == 1 else 12):
            crashes.round()
        crashes.round(OPENING)
        crashes.round(CLOSING, most=20)
        assert crashes.kills >= 3
