"""Updates learn what they learned when the stored trajectories were written.

A change of losses, optimizers, schedules or first weights shows here. One that is meant writes the
trajectories anew, by the option --refresh-golden.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.learning import language_trajectories, replay_trajectories, trajectories
from tests.learning.trajectories import Trajectory

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.long(but=["ppo_discrete-native"])
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("case", trajectories.CASES)
def test_updates_follow_the_stored_trajectory(
    case: str, backend: Any, request: pytest.FixtureRequest
) -> None:
    found = trajectories.trajectory(case, backend)
    is_truth = backend == "torch"
    compare(case, found, refresh=request.config.getoption("--refresh-golden") and is_truth)


@pytest.mark.long(but=["dqn-torch", "dqn-native"])
@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("case", replay_trajectories.CASES)
def test_gradient_steps_follow_the_stored_trajectory(
    case: str, backend: Any, request: pytest.FixtureRequest
) -> None:
    if backend == "native" and case not in replay_trajectories.NATIVE:
        pytest.skip("it has no native twin")
    found = replay_trajectories.trajectory(case, backend)
    is_truth = backend == "torch"
    compare(case, found, refresh=request.config.getoption("--refresh-golden") and is_truth)


@pytest.mark.long
@pytest.mark.parametrize("case", language_trajectories.CASES)
def test_updates_of_language_models_follow_the_stored_trajectory(
    case: str, request: pytest.FixtureRequest
) -> None:
    found = language_trajectories.trajectory(case)
    compare(case, found, refresh=request.config.getoption("--refresh-golden"))


def compare(case: str, found: Trajectory, *, refresh: bool) -> None:
    path = FOLDER / f"{case}.json"
    if refresh:
        write(path, found)
    stored: Trajectory = json.loads(path.read_text())
    assert len(found) == len(stored)
    for update, (now, then) in enumerate(zip(found, stored, strict=True)):
        for name in then:
            assert now[name] == pytest.approx(then[name], rel=1e-3, abs=1e-4), (update, name)


def write(path: Path, found: Trajectory) -> None:
    """One line an update, so that a difference shows where it begins."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
