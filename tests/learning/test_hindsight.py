"""Tasks whose reward is almost never seen, and which hindsight makes learnable."""

from __future__ import annotations

from functools import partial

import pytest

import sharpwave as sw
from tests.envs import BitFlipEnv, ReachEnv


@pytest.mark.long
@pytest.mark.parametrize(("her_goals", "learns"), [(4, True), (0, False)])
def test_bits_are_flipped_with_hindsight_only(her_goals: int, learns: bool) -> None:
    dqn = sw.DQN(
        partial(BitFlipEnv, 8),
        her_goals=her_goals,
        hidden=(32, 32),
        batch_size=64,
        learning_starts=200,
        learning_rate=2e-3,
        gamma=0.95,
        target_update_freq=100,
        exploration_fraction=0.3,
        train_freq=2,
        seed=1,
    )
    dqn.train(3_000)
    assert (dqn.evaluate(40).mean > -5) == learns  # the best is about -3, nothing is -8


@pytest.mark.slow
@pytest.mark.parametrize(("her_goals", "learns"), [(4, True), (0, False)])
def test_places_are_reached_with_hindsight_only(her_goals: int, learns: bool) -> None:
    sac = sw.SAC(
        ReachEnv,
        her_goals=her_goals,
        hidden=(32, 32),
        batch_size=64,
        learning_starts=200,
        learning_rate=3e-3,
        gamma=0.9,
        tau=0.02,
        seed=1,
    )
    sac.train(2_000)
    assert (sac.evaluate(40).mean > -6) == learns  # the best is about -2, nothing is -12
