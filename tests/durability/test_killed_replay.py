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

KINDS = [
    Kind("flat", prioritized=True),
    Kind("flat", n_envs=2),
    Kind("frames", n_envs=2, prioritized=True),
    Kind("frames", n_envs=3, continues=False),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_writer_killed_again_and_again_leaves_exactly_what_it_committed(
    kind: Kind, memory_path: Path
) -> None:
    crashes = Crashes(Replay(kind), memory_path, int.from_bytes(os.urandom(4), "little"))
    for _ in range(3):
        crashes.round()
    crashes.round(OPENING)
    crashes.round(CLOSING, most=20)
