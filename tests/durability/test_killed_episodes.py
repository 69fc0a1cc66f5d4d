"""Writers of episodes that are killed at any moment lose at most the step in flight."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.durability.crash import CLOSING, OPENING, Crashes
from tests.durability.episode_script import Episodes
from tests.durability.processes import preload

preload(__name__)


@pytest.mark.long(
    but=["Episodes(circular=False, max_episodes=6, durability='process', codec=None)-1"]
)
@pytest.mark.parametrize(
    ("subject", "folders"),
    [
        (Episodes(circular=False), 1),
        (Episodes(circular=True), 1),
        (Episodes(circular=True, durability="power"), 1),
        (Episodes(circular=True, max_episodes=12, codec="delta+zstd"), 1),
        pytest.param(Episodes(circular=False), 10, marks=pytest.mark.slow),
        pytest.param(Episodes(circular=True), 10, marks=pytest.mark.slow),
        pytest.param(Episodes(circular=False, durability="power"), 4, marks=pytest.mark.slow),
        pytest.param(
            Episodes(circular=True, max_episodes=12, codec="lz4"), 4, marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_a_writer_killed_again_and_again_leaves_exactly_what_it_committed(
    subject: Episodes, folders: int, memory_path: Path
) -> None:
    most = 300 if subject.durability == "process" else 40
    for number in range(folders):
        seed = int.from_bytes(os.urandom(4), "little")
        crashes = Crashes(subject, memory_path / str(number), seed)
        for _ in range(3 if folders == 1 else 12):
            crashes.round(most=most)
        crashes.round(OPENING)
        crashes.round(CLOSING, most=20)
        assert crashes.kills >= 3
