"""Hindsight relabeling in the buffers for stable-baselines3."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from sharpwave.types import Array, Nested

pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her import her_replay_buffer as peer

from sharpwave.integrations.sb3 import HerReplayBuffer

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small networks only lose by more, and several tests run at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shapes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shapes(inner) for key, inner in value.items()}
    return None if value is None else (tuple(value.shape), value.dtype)


GOALS = Box(-1.0, 1000.0, (2,), np.float32)
GOAL_SPACE = Dict({"observation": GOALS, "achieved_goal": GOALS, "desired_goal": GOALS})


class Journal(gym.Env[Any, Any]):
    """A goal environment whose achieved goal says which episode and step it is."""

    observation_space = GOAL_SPACE
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    episode = -1

    def reset(self, **options: Any) -> tuple[Nested, dict[str, Any]]:
        super().reset(**options)
        self.episode += 1
        self.t = 0
        return self.page(), {}

    def step(self, action: Any) -> tuple[Nested, float, bool, bool, dict[str, Any]]:
        self.t += 1
        page = self.page()
        reward = float(self.compute_reward(page["achieved_goal"], page["desired_goal"], {}))
        return page, reward, False, self.t == 5 + self.episode % 4, {"page": (self.episode, self.t)}

    def page(self) -> Nested:
        here = np.array([self.episode, self.t], np.float32)
        return {
            "observation": here,
            "achieved_goal": here,
            "desired_goal": np.array([-1, -1], np.float32),
        }

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        if isinstance(info, list) and info and info[0]:
            np.testing.assert_array_equal([one["page"] for one in info], achieved_goal)
        missed: Array = np.any(achieved_goal != desired_goal, axis=-1)
        return -missed.astype(np.float64)


def lived(cls: Any, n_steps: int = 60, **options: Any) -> Any:
    env = DummyVecEnv([Journal, Journal])
    buffer = cls(
        400, env.observation_space, env.action_space, env=env, device="cpu", n_envs=2, **options
    )
    obs = env.reset()
    for _ in range(n_steps):
        action = np.zeros((2, 1), np.float32)
        next_obs, reward, done, infos = env.step(action)
        last = copy.deepcopy(next_obs)
        for i in np.flatnonzero(done):
            for key in last:
                last[key][i] = infos[i]["terminal_observation"][key]
        buffer.add(obs, last, action, reward, done, infos)
        obs = next_obs
    return buffer


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("copy_info_dict", [False, True])
def test_hindsight_goals_come_from_the_same_episode(strategy: str, copy_info_dict: bool) -> None:
    buffer = lived(HerReplayBuffer, goal_selection_strategy=strategy, copy_info_dict=copy_info_dict)
    samples = buffer.sample(2000)
    now, after = samples.observations, samples.next_observations
    goal = now["desired_goal"]
    assert torch.equal(goal, after["desired_goal"])
    relabeled = goal[:, 0] >= 0
    assert relabeled.float().mean() == pytest.approx(0.8, abs=0.05)
    episode, t = now["observation"][relabeled].T
    goal_episode, goal_t = goal[relabeled].T
    assert torch.equal(goal_episode, episode)
    length = 5 + episode % 4
    if strategy == "future":
        assert torch.all(goal_t > t)
        assert torch.any(goal_t > t + 1)
    elif strategy == "final":
        ended = episode < episode.max()
        assert torch.equal(goal_t[ended], length[ended])
    assert torch.all((goal_t >= 1) & (goal_t <= length))
    reached = (after["achieved_goal"] == goal).all(dim=1)
    assert torch.equal(samples.rewards[:, 0], reached.float() - 1)
    assert reached.any()
    assert not samples.dones.any()


def test_hindsight_samples_look_like_those_of_the_peer() -> None:
    ours, theirs = lived(HerReplayBuffer), lived(peer.HerReplayBuffer)
    own, other = ours.sample(32), theirs.sample(32)
    assert type(own) is type(other)
    assert [shapes(value) for value in own] == [shapes(value) for value in other]


def test_hindsight_normalizes_after_relabeling() -> None:
    buffer = lived(HerReplayBuffer)
    env = VecNormalize(DummyVecEnv([Journal]), norm_obs_keys=["observation"])
    env.obs_rms["observation"].mean[:] = 3.0
    samples = buffer.sample(500, env)
    goal, seen = samples.observations["desired_goal"], samples.observations["observation"]
    relabeled = goal[:, 0] >= 0
    np.testing.assert_allclose(seen[relabeled, 0] + 3, goal[relabeled, 0], atol=1e-3)


@pytest.mark.long
def test_hindsight_runs_and_resumes_in_an_algorithm(tmp_path: Path) -> None:
    env = DummyVecEnv([Journal])
    model = SAC(
        *("MultiInputPolicy", env),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 2, "copy_info_dict": True},
        learning_starts=5,
        policy_kwargs={"net_arch": [16]},
        batch_size=32,
        seed=0,
        device="cpu",
    )
    model.learn(80)
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    model.learn(40, reset_num_timesteps=False)
    assert model.replay_buffer.size() == 120


def test_rewards_without_an_environment_are_refused() -> None:
    buffer = pickle.loads(pickle.dumps(lived(HerReplayBuffer)))
    with pytest.raises(ValueError, match="set_env"):
        buffer.sample(32)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="strategy must be one of"):
        HerReplayBuffer(
            50, GOAL_SPACE, Journal.action_space, env=None, goal_selection_strategy="past"
        )
