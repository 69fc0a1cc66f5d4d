"""Scores have random actions at 0 and an expert at 100."""

from __future__ import annotations

import numpy as np
import pytest

from sharpwave.datasets import (
    REFERENCES,
    expert_ids,
    measure_reference,
    normalized_score,
    reference,
)


@pytest.mark.parametrize("env_id", REFERENCES)
def test_the_references_are_0_and_100(env_id: str) -> None:
    known = REFERENCES[env_id]
    assert known.random < known.expert
    assert normalized_score(env_id, known.random) == 0
    assert normalized_score(env_id, known.expert) == 100
    scores = normalized_score(env_id, [[known.random], [known.expert]])
    assert scores.tolist() == [[0], [100]]


def test_every_scripted_expert_has_a_reference() -> None:
    assert set(expert_ids()) <= set(REFERENCES)


@pytest.mark.long(only=["MountainCarContinuous-v0"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCarContinuous-v0", "Pendulum-v1"])
def test_measuring_again_gives_about_the_same(env_id: str) -> None:
    measured = measure_reference(env_id, n_episodes=20, seed=5)
    scores = normalized_score(env_id, [measured.random, measured.expert])
    np.testing.assert_allclose(scores, [0, 100], atol=10)


def test_versions_of_a_mujoco_environment_share_the_published_reference() -> None:
    assert reference("Walker2d-v5") is reference("Walker2d-v2") is REFERENCES["Walker2d"]
    assert normalized_score("Hopper-v5", 1607.0) == pytest.approx(49.99, abs=0.01)


def test_an_environment_without_a_reference_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="for 'CartPole-v0'; did you mean 'CartPole-v1'"):
        normalized_score("CartPole-v0", 1.0)
