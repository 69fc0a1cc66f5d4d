"""Agents are pickled and copied, and the copy goes on as the original would."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import sharpwave as sw
from tests.contract.learners import BOTH_BACKENDS, LEARNERS, state_of
from tests.envs import ResumableCartPole

each = pytest.mark.parametrize(("name", "backend"), BOTH_BACKENDS)
Copier = Callable[[Any], Any]


def by_pickle(agent: Any) -> Any:
    return pickle.loads(pickle.dumps(agent))


BOTH = pytest.mark.parametrize("copier", [by_pickle, copy.deepcopy], ids=["pickle", "deepcopy"])
SMALL: dict[str, Any] = {"n_envs": 2, "n_steps": 8, "hidden": (8,), "seed": 1}
REPLAY: dict[str, Any] = {"learning_starts": 16, "batch_size": 8, "hidden": (8,), "seed": 1}


class Counting(sw.Callback):
    """Counts updates, and knows its agent."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.agent: Any = None

    def on_train_batch(self, **kwargs: Any) -> bool:
        self.count += 1
        self.agent = kwargs["algo"]
        return True


class Half(sw.PPOLearner):
    """A learner with a loss of its own."""

    def loss(self, batch: Any) -> Any:
        loss, metrics = super().loss(batch)
        return 0.5 * loss, metrics


class Scaled(sw.PPO):
    """A subclass with a learner, a constructor and an attribute of its own."""

    Learner = Half

    def __init__(self, env: str, scale: float) -> None:
        self.scale = scale
        super().__init__(env, **SMALL)


def doubled(learner: Any, batch: Any) -> Any:
    loss, metrics = sw.PPOLearner.loss(learner, batch)
    return 2 * loss, metrics


class Module(torch.nn.Module):
    """A network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.net(obs)
        return values


@pytest.mark.long(but=["pickle-ppo-native"])
@each
@BOTH
def test_a_copy_goes_on_bit_for_bit_and_is_its_own(name: str, backend: str, copier: Copier) -> None:
    """Agents could be neither pickled nor copied."""
    learner = LEARNERS[name]
    agent = learner.make(backend=backend)
    agent.train(learner.steps)
    other = copier(agent)
    before = state_of(agent)
    assert state_of(other) == before
    assert (other.timesteps, other.backend) == (agent.timesteps, agent.backend)
    other.train(learner.steps)
    assert state_of(agent) == before
    agent.train(learner.steps)
    assert state_of(agent) == state_of(other) != before
    obs = agent.observation_space.sample()
    assert np.array_equal(agent.predict(obs), other.predict(obs))


@pytest.mark.long(but=["ppo-native", "dqn-native"])
@each
def test_before_the_first_step_too(name: str, backend: str) -> None:
    learner = LEARNERS[name]
    agent = learner.make(backend=backend)
    other = by_pickle(agent)
    for one in (agent, other):
        one.train(learner.steps)
    assert state_of(agent) == state_of(other)


@BOTH
def test_callbacks_that_know_their_agent_come_along(copier: Copier) -> None:
    agent = sw.PPO("CartPole-v1", callbacks=(callback := Counting()), **SMALL)
    agent.train(32)
    other = copier(agent)
    assert isinstance(other.callbacks[0], Counting)
    assert other.callbacks[0] is not callback
    assert other.callbacks[0].agent is other
    other.train(32)
    assert (other.callbacks[0].count, callback.count) == (4, 2)


@pytest.mark.long
@BOTH
def test_subclasses_and_assigned_methods_stay_what_they_are(copier: Copier) -> None:
    agent: Any = Scaled("CartPole-v1", scale=0.5)
    agent.note = {"mine": [1, 2]}
    agent.train(32)
    other = copier(agent)
    assert (type(other), other.scale, other.note) == (Scaled, 0.5, {"mine": [1, 2]})
    assert other.note is not agent.note
    given = sw.PPO("CartPole-v1", learner=Half, **SMALL)
    given.train(32)
    third = copier(given)
    assert type(other.learner) is type(third.learner) is Half
    assigned = sw.PPO("CartPole-v1", backend="torch", **SMALL)
    assigned.learner.loss = doubled.__get__(assigned.learner)
    assigned.train(32)
    second = copier(assigned)
    assert second.learner.loss.__self__ is second.learner
    assert state_of(given) == state_of(agent) != state_of(assigned)
    for one, two in ((agent, other), (assigned, second), (given, third)):
        for run in (one, two):
            run.train(32)
        assert state_of(one) == state_of(two)


@pytest.mark.long(but=["memory-pickle"])
@BOTH
@pytest.mark.parametrize(
    "buffer",
    ["memory", "device", "prioritized", lambda: sw.ReplayBuffer(300, obs_dim=4, act_dim=1)],
    ids=["memory", "device", "prioritized", "given"],
)
def test_buffers_come_along(copier: Copier, buffer: Any) -> None:
    options: dict[str, Any] = {"buffer": buffer() if callable(buffer) else buffer}
    if buffer == "prioritized":
        options = {"prioritized": True, "n_step": 2}
    agent = sw.DQN("CartPole-v1", **REPLAY, **options)
    agent.train(60)
    other = copier(agent)
    assert len(other.buffer) == len(agent.buffer)
    other.train(40)
    assert agent.gradient_steps == 45
    agent.train(40)
    assert state_of(agent) == state_of(other)


@BOTH
def test_a_folder_has_one_writer(copier: Copier, memory_path: Path) -> None:
    agent = sw.DQN("CartPole-v1", buffer=memory_path / "buffer", **REPLAY)
    agent.train(40)
    with pytest.raises(TypeError, match="buffer of the agent is a folder, which has one writer"):
        copier(agent)
    agent.close()


@BOTH
@pytest.mark.parametrize(
    "env",
    [
        ResumableCartPole,
        lambda: gym.make("CartPole-v1"),
        lambda: sw.make_vec_env("CartPole-v1", 2),
        lambda: ResumableCartPole(),
    ],
    ids=["class", "object with an id", "vector", "object"],
)
def test_environments_of_every_kind(copier: Copier, env: Any) -> None:
    is_class = isinstance(env, type)
    options = SMALL if is_class else {k: v for k, v in SMALL.items() if k != "n_envs"}
    agent = sw.PPO(env if is_class else env(), **options)
    agent.train(32)
    other = copier(agent)
    assert other.env is not agent.env
    before = state_of(agent)
    other.train(32)
    assert state_of(agent) == before != state_of(other)


def test_a_checkpoint_of_an_environment_object_loads_where_the_id_makes_another_kind(
    tmp_path: Path,
) -> None:
    """The id of an environment in Python made native ones, which took no state of its kind."""
    agent = sw.PPO(gym.make("CartPole-v1"), n_steps=8, hidden=(8,), seed=1)
    agent.train(32)
    agent.save(tmp_path / "a")
    again = sw.PPO.from_checkpoint(tmp_path / "a")
    assert state_of(again) == state_of(agent)
    again.train(32)


def test_what_cannot_be_pickled_is_named() -> None:
    agent = sw.PPO(lambda: gym.make("CartPole-v1"), **SMALL)
    with pytest.raises(TypeError, match="env_id of the agent cannot be pickled: give it as an id"):
        pickle.dumps(agent)
    other = copy.deepcopy(agent)  # functions are shared
    other.train(32)
    scheduled = sw.PPO("CartPole-v1", learning_rate=lambda progress: 1e-3 * progress, **SMALL)
    with pytest.raises(TypeError, match="config of the agent cannot be pickled"):
        pickle.dumps(scheduled)
    copy.deepcopy(scheduled).train(32)


@BOTH
def test_networks_of_ones_own_come_along(copier: Copier) -> None:
    agent = sw.DQN("CartPole-v1", q_network=Module(), **REPLAY)
    agent.train(40)
    other = copier(agent)
    before = state_of(agent)
    other.train(40)
    assert state_of(agent) == before
    agent.train(40)
    assert state_of(agent) == state_of(other)
