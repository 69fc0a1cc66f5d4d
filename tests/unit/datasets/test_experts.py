"""The scripted experts are as good as they are said to be, on any number of observations."""

from __future__ import annotations

import contextlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.datasets import collect, episode_returns, expert, expert_ids

PLAYABLE = set(expert_ids()) - {"LunarLander-v3", "LunarLanderContinuous-v3"}
with warnings.catch_warnings(), contextlib.suppress(ImportError):
    warnings.simplefilter(
        "ignore"
    )  # its import crashes where the warnings that it makes are errors
    import Box2D  # noqa: F401

    PLAYABLE = set(expert_ids())


@pytest.mark.long(but=["CartPole-v1-500"])
@pytest.mark.parametrize(
    ("env_id", "bar"),
    [
        ("CartPole-v1", 500),
        ("Pendulum-v1", -175),
        ("MountainCar-v0", -115),
        ("MountainCarContinuous-v0", 95),
        ("Acrobot-v1", -90),
        ("LunarLander-v3", 260),
        ("LunarLanderContinuous-v3", 260),
    ],
)
def test_returns_reach_the_bar(env_id: str, bar: float) -> None:
    if env_id not in PLAYABLE:
        pytest.skip("needs Box2D")
    returns = episode_returns(collect(env_id, "expert", n_episodes=20, seed=1))
    assert len(returns) == 20
    assert returns.mean() >= bar


@given(st.data())
def test_actions_are_those_of_the_space_row_by_row(data: st.DataObject) -> None:
    env_id = data.draw(st.sampled_from(sorted(PLAYABLE)))
    env = gym.make(env_id)
    env.observation_space.seed(data.draw(st.integers(0, 2**31)))
    n = data.draw(st.integers(1, 6))
    obs = np.stack([env.observation_space.sample() for _ in range(n)])
    act = expert(env_id)
    actions = act(obs)
    assert len(actions) == n
    assert all(env.action_space.contains(action) for action in actions)
    assert actions.tolist() == [act(row[None])[0].tolist() for row in obs]


def test_an_environment_without_one_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no scripted expert for 'CartPole-v0'; did you mean"):
        expert("CartPole-v0")
