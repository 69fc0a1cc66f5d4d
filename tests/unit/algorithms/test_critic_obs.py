"""Critics that look at what actors do not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw


class Privileged(gym.Env[Any, Any]):
    """The actor sees a clue, and the critic the answer."""

    observation_space = spaces.Dict(
        {"clue": spaces.Box(-1, 1, (2,), np.float32), "state": spaces.Box(-1, 1, (3,), np.float32)}
    )
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return self._obs(), float(action), False, self.time >= 10, {}

    def _obs(self) -> Any:
        numbers = self.np_random.uniform(-1, 1, 5).astype(np.float32)
        return {"clue": numbers[:2], "state": numbers[2:]}


OPTIONS: dict[str, Any] = {"n_envs": 2, "n_steps": 16, "critic_obs": "state", "seed": 0}


@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_actor_and_critic_look_at_their_own_entries(name: str) -> None:
    agent = getattr(sw, name)(Privileged, **OPTIONS)
    assert agent.backend == "torch"
    policy = agent.policy
    assert policy.actor[0].in_features == 2
    assert policy.critic[0].in_features == 3
    obs = {"clue": torch.zeros(4, 2), "state": torch.randn(4, 3)}
    other = {**obs, "state": torch.randn(4, 3)}
    masks = [policy.act(x, deterministic=True) for x in (obs, other)]
    assert torch.equal(masks[0].log_probs, masks[1].log_probs)
    assert not torch.equal(masks[0].values, masks[1].values)
    before = policy.critic[0].weight.clone()
    agent.train(64)
    assert not torch.equal(before, policy.critic[0].weight)
    agent.close()


def test_play_does_without_what_only_the_critic_sees(tmp_path: Path) -> None:
    agent = sw.PPO(Privileged, **OPTIONS)
    agent.train(64)
    whole = {"clue": [0.3, -0.2], "state": [0.1, 0.2, 0.3]}
    action = agent.predict(whole)
    assert agent.predict({"clue": [0.3, -0.2]}) == action
    assert agent.predict({"clue": np.zeros((5, 2))}).shape == (5,)
    agent.save(tmp_path / "agent")
    loaded = sw.PPO.from_checkpoint(tmp_path / "agent", env=Privileged)
    assert loaded.predict({"clue": [0.3, -0.2]}) == action
    for one in (agent, loaded):
        one.close()


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_memories_of_actor_and_critic_have_inputs_of_their_own(recurrent: str) -> None:
    agent = sw.PPO(Privileged, recurrent=recurrent, **OPTIONS)
    metrics = agent.train(64)
    assert np.isfinite(metrics["loss"])
    agent.close()


@pytest.mark.parametrize(
    ("env", "key"), [(Privileged, "stat"), ("CartPole-v1", "state")], ids=["unknown", "no dict"]
)
def test_an_unknown_entry_is_named(env: Any, key: str) -> None:
    with pytest.raises(ValueError, match=f"critic_obs must be one of several keys .* got '{key}'"):
        sw.PPO(env, critic_obs=key)


def test_features_can_be_normalized() -> None:
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=16, feature_norm=True, seed=0)
    assert agent.backend == "torch"
    norm = agent.policy.actor_norm
    assert norm.normalized_shape == (4,)
    agent.train(64)
    assert not torch.equal(norm.weight, torch.ones(4))
    agent.close()
