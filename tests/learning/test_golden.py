"""Updates learn what they learnt when the stored trajectories were written.

A change of losses, optimisers, schedules or first weights shows here. One that is meant writes the
trajectories anew, by the option --refresh-golden.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.learning.trajectories import CASES, METRICS, Trajectory, trajectory

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("by_hand", [False, True], ids=["autograd", "by_hand"])
@pytest.mark.parametrize("case", CASES)
def test_updates_follow_the_stored_trajectory(
    case: str, by_hand: bool, request: pytest.FixtureRequest
) -> None:
    path = FOLDER / f"{case}.json"
    found = trajectory(case, by_hand=by_hand)
    if request.config.getoption("--refresh-golden") and not by_hand:
        write(path, found)
    stored: Trajectory = json.loads(path.read_text())
    assert len(found) == len(stored)
    for update, (now, then) in enumerate(zip(found, stored, strict=True)):
        for name in METRICS:
            assert now[name] == pytest.approx(then[name], rel=1e-3, abs=1e-4), (update, name)


def write(path: Path, found: Trajectory) -> None:
    """One line an update, so that a difference shows where it begins."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
