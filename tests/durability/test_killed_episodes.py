"""Writers of episodes that are killed at any moment lose at most the step in flight."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.durability.crash import CLOSING, OPENING, Crashes
from tests.durability.episode_script import Episodes
from tests.durability.processes import preload

preload(__name__)


@pytest.mark.parametrize("circular", [False, True])
def test_a_writer_killed_again_and_again_leaves_exactly_what_it_committed(
    circular: bool, tmp_path: Path
) -> None:
    crashes = Crashes(Episodes(circular), tmp_path, int.from_bytes(os.urandom(4), "little"))
    for _ in range(4):
        crashes.round()
    crashes.round(OPENING)
    crashes.round(CLOSING, most=20)
    assert crashes.kills >= 4
