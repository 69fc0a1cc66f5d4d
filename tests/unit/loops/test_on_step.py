"""Callbacks see every step: observations, actions, rewards, ends, next observations and infos.

Hooks were told the mean reward and nothing else.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import NativeRollouts, OffPolicyCollector, VectorStep
from sharpwave.envs import ActionMap, make_vec_env
from sharpwave.learners import Acted
from sharpwave.tensors import HostSteps, TensorCollector, TensorTransitionCollector
from sharpwave.types import Array
from tests.envs import CountingEnv, vectorized
from tests.unit.envs.tensor_envs import Points

N_ENVS, LENGTHS = 3, (3, 1, 4)
KINDS = ["own", "next_step", "same_step", "disabled"]
REPLAY: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "hidden": 8, "log_interval": 30}
ROLLOUTS: dict[str, Any] = {"n_steps": 10, "hidden": (8,)}


class Steps(sw.Callback):
    """Keeps every step, and stops after so many of them."""

    def __init__(self, stop_after: int = 10**9) -> None:
        self.seen: list[VectorStep] = []
        self.numbers: list[int] = []
        self.rewards: list[float] = []
        self.stop_after = stop_after

    def on_step(self, step: int, reward: float, transitions: VectorStep) -> bool:
        self.seen.append(transitions)
        self.numbers.append(step)
        self.rewards.append(reward)
        return len(self.seen) < self.stop_after


def counting(kind: str) -> Any:
    turns = iter(range(10**6))
    if kind == "own":
        return lambda: CountingEnv(LENGTHS, next(turns), "alternating")
    makers = [partial(CountingEnv, LENGTHS, i, "alternating") for i in range(N_ENVS)]
    return vectorized(makers, kind)


def assert_as_counted(steps: list[VectorStep]) -> int:
    """That the steps are those of counting environments, all of them and in order; how many."""
    expected = [(float(i), 0.0, 0.0) for i in range(N_ENVS)]
    n = 0
    for step in steps:
        for i in np.flatnonzero(step.valid):
            n += 1
            number, episode, at = (float(x) for x in step.obs[i])
            assert (number, episode, at) == expected[i]
            assert step.next_obs[i].tolist() == [number, episode, at + 1]
            action = float(step.actions[i])
            assert step.rewards[i] == pytest.approx(1 + number + (at + 1) / 10 + action / 100)
            ends = at + 1 == LENGTHS[int(episode) % len(LENGTHS)]
            terminates = ends and episode % 2 == 0
            assert (step.terminated[i], step.truncated[i]) == (terminates, ends and not terminates)
            assert step.infos["step"][i] == at + 1
            assert step.infos["_step"][i]
            assert bool(step.infos.get("_last", np.zeros(N_ENVS))[i]) == ends
            assert "final_obs" not in step.infos
            expected[i] = (number, episode + 1, 0.0) if ends else (number, episode, at + 1)
    return n


def agents(kind: str) -> list[Any]:
    make = partial(counting, kind)
    return [
        sw.PPO(make(), n_envs=N_ENVS, **ROLLOUTS),
        sw.PPO(make(), n_envs=N_ENVS, backend="torch", **ROLLOUTS),
        sw.A2C(make(), n_envs=N_ENVS, recurrent="gru", **ROLLOUTS),
        sw.DQN(make(), n_envs=N_ENVS, **REPLAY),
        sw.DQN(make(), n_envs=N_ENVS, backend="torch", train_freq=4, overlap=True, **REPLAY),
    ]


@pytest.mark.long(but=["own"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_seen_in_order(kind: str) -> None:
    for agent in agents(kind):
        steps = Steps()
        agent.train(60, callbacks=steps)
        agent.train(30, callbacks=steps)
        assert assert_as_counted(steps.seen) == agent.timesteps >= 90
        assert steps.numbers == np.cumsum([one.valid.sum() for one in steps.seen]).tolist()


def test_arrays_stay_what_they_were() -> None:
    agent = sw.PPO(counting("own"), n_envs=N_ENVS, **ROLLOUTS)
    copies: list[Any] = []

    class Copies(sw.Callback):
        def on_step(self, transitions: VectorStep) -> None:
            copies.append((transitions, transitions.obs.copy(), transitions.next_obs.copy()))

    agent.train(90, callbacks=Copies())
    for step, obs, next_obs in copies:
        np.testing.assert_array_equal(step.obs, obs)
        np.testing.assert_array_equal(step.next_obs, next_obs)


NATIVE: dict[str, Any] = {
    "ppo": lambda: sw.PPO("CartPole-v1", n_envs=4, n_steps=64, seed=1),
    "a2c": lambda: sw.A2C("MountainCarContinuous-v0", n_envs=4, n_steps=600, seed=1),
    "hybrid": lambda: sw.HybridPPO("CartPole-v1", n_envs=4, n_steps=64, seed=1),
    "overlap": lambda: sw.HybridPPO("CartPole-v1", n_envs=4, n_steps=64, overlap=True, seed=1),
}


@pytest.mark.long(but=["ppo"])
@pytest.mark.parametrize("name", NATIVE)
def test_native_rollouts_stay_native_and_are_seen(name: str) -> None:
    agent, plain = NATIVE[name](), NATIVE[name]()
    steps = Steps()
    n = 3 * 4 * agent.config.n_steps
    agent.train(n, callbacks=steps)
    plain.train(n)
    assert isinstance(agent.collector, NativeRollouts)
    assert len(steps.seen) == n // 4
    np.testing.assert_array_equal(agent.block, plain.block)
    by_hand: Any = gymnasium.make(str(agent.env_id)).unwrapped
    ends = 0
    for now, after in zip(steps.seen, [*steps.seen[1:], None], strict=True):
        ended = now.terminated | now.truncated
        ends += int(ended.sum())
        if after is not None:
            np.testing.assert_array_equal(now.next_obs[~ended], after.obs[~ended])
        for i in np.flatnonzero(ended):
            by_hand.reset()
            by_hand.state = np.array(now.obs[i], np.float64)
            reached, reward, terminated, *_ = by_hand.step(now.actions[i])
            np.testing.assert_allclose(now.next_obs[i], reached, atol=1e-5)
            assert now.rewards[i] == pytest.approx(reward, abs=1e-4)
            assert terminated == now.terminated[i]
    assert ends == agent.episodes.count > 3
    low, high = (
        getattr(agent.action_space, "low", -np.inf),
        getattr(agent.action_space, "high", np.inf),
    )
    assert all(((low <= step.actions) & (step.actions <= high)).all() for step in steps.seen)
    agent.close()
    plain.close()


class Reusing(Points):
    """Writes everything to the same memory, as fast simulators do."""

    memory: list[Any] | None = None

    def step(self, actions: Any) -> Any:
        *told, infos = super().step(actions)
        if self.memory is None:
            self.memory = [torch.empty_like(tensor) for tensor in told]
        for kept, tensor in zip(self.memory, told, strict=True):
            kept.copy_(tensor)
        return *self.memory, infos


@pytest.mark.long(but=["ppo-Points"])
@pytest.mark.parametrize("env", [Points, Reusing, partial(Points, tells_final=False)])
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_steps_of_tensors_are_seen(env: Any, algorithm: str) -> None:
    steps = Steps()
    if algorithm == "ppo":
        agent: Any = sw.PPO(env(5, limit=7), n_steps=10, hidden=(8,), backend="torch")
    else:
        agent = sw.SAC(env(5, limit=7), buffer="device", **REPLAY)
    agent.train(200, callbacks=steps)
    kind = TensorCollector if algorithm == "ppo" else TensorTransitionCollector
    assert isinstance(agent.collector, kind)
    assert len(steps.seen) == 40
    for now, after in zip(steps.seen, steps.seen[1:], strict=False):
        assert isinstance(now.obs, torch.Tensor)
        ended = now.terminated | now.truncated
        assert torch.equal(now.next_obs[~ended], after.obs[~ended])
        speed = now.obs[:, 1] + 0.2 * now.actions[:, 0]
        reached = torch.stack((now.obs[:, 0] + 0.2 * speed, speed), 1)
        known = torch.ones_like(ended) if not isinstance(env, partial) else ~ended
        torch.testing.assert_close(now.next_obs[known], reached[known])
        torch.testing.assert_close(now.rewards, -(reached[:, 0] ** 2) - 0.1 * speed**2)
    assert steps.rewards == pytest.approx([float(one.rewards.mean()) for one in steps.seen])


class Zeros:
    """Acts with zeros, as a policy of tensors does."""

    def act_tensors(self, obs: Any, starts: Any, masks: Any) -> Any:
        return Acted(torch.zeros(len(starts), dtype=torch.int64), *torch.zeros(2, len(starts)))

    def value_tensors(self, obs: Any) -> Any:
        return torch.zeros(N_ENVS)


@pytest.mark.parametrize("kind", ["same_step", "disabled"])
def test_steps_that_are_sent_to_a_device_are_seen_as_arrays(kind: str) -> None:
    env = counting(kind)
    steps = HostSteps(env, ActionMap(env.single_action_space), torch.device("cpu"))
    collector = TensorCollector(
        steps, Zeros(), n_envs=N_ENVS, n_steps=40, seed=0, device=torch.device("cpu")
    )
    seen: list[VectorStep] = []

    def on_step(_: float, step: Any) -> bool:
        seen.append(step())
        return True

    collector.collect(0.99, 0.95, on_step)
    assert isinstance(seen[0].obs, np.ndarray)
    assert assert_as_counted(seen) == 120


@pytest.mark.long(but=["own"])
@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_raw_and_observations_what_the_policy_sees(kind: str) -> None:
    options: dict[str, Any] = {"normalize_obs": True, "normalize_rewards": True}
    for agent in (
        sw.PPO(counting(kind), n_envs=N_ENVS, **ROLLOUTS, **options),
        sw.DQN(counting(kind), n_envs=N_ENVS, **REPLAY, **options),
    ):
        steps = Steps()
        agent.train(90, callbacks=steps)
        rewards = np.concatenate([one.rewards[one.valid] for one in steps.seen])
        assert rewards.min() >= 1
        numbers = np.concatenate([one.obs[:, 0] for one in steps.seen[10:]])
        spread = np.sqrt(1.5)  # of 0, 1 and 2 over their deviation
        np.testing.assert_allclose(np.unique(numbers.round(2)), [-spread, 0, spread], atol=0.02)


@pytest.mark.long(but=["0"])
@pytest.mark.parametrize("number", range(5))
def test_false_stops_there_and_then(number: int) -> None:
    agent = agents("own")[number]
    steps = Steps(stop_after=7)
    agent.train(600, callbacks=steps)
    assert agent.stop_reason == "Steps.on_step returned False"
    assert len(steps.seen) == 7


@pytest.mark.long
def test_nothing_is_made_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps are made only where a callback takes them."""
    made: list[VectorStep] = []
    original = VectorStep.of

    def of(obs: Any, actions: Array, step: Any) -> VectorStep:
        made.append(original(obs, actions, step))
        return made[-1]

    monkeypatch.setattr(VectorStep, "of", of)

    class Numbers(sw.Callback):
        def on_step(self, step: int, reward: float) -> None:
            pass

    class Everything(sw.Callback):
        def on_step(self, **kwargs: Any) -> None:
            assert set(kwargs) == {"algo", "step", "reward", "transitions"}

    for agent in agents("own"):
        agent.train(30)
        agent.train(30, callbacks=[Numbers(), sw.EarlyStoppingCallback(patience=100)])
        assert made == []
        if isinstance(agent.collector, OffPolicyCollector):
            assert not agent.collector.is_watched
        agent.train(30, callbacks=Everything())
        assert made
        made.clear()


def test_offline_algorithms_have_gradient_steps_without_transitions() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(40, 3)).astype(np.float32)
    data = {
        "obs": obs,
        "next_obs": obs,
        "actions": rng.uniform(-1, 1, (40, 1)).astype(np.float32),
        "rewards": np.ones(40),
        "terminated": np.zeros(40, bool),
        "truncated": np.arange(40) % 10 == 9,
    }
    agent = sw.BC(data, hidden=8, batch_size=8)
    with pytest.raises(TypeError, match=r"Steps\.on_step must do without '(reward|transitions)'"):
        agent.train(5, callbacks=Steps())


def test_vector_environments_of_gymnasium_are_seen() -> None:
    env = make_vec_env("CartPole-v1", 2, mode="sync")
    steps = Steps()
    sw.PPO(env, n_steps=50, hidden=(8,)).train(200, callbacks=steps)
    assert len(steps.seen) == 100
    for now, after in zip(steps.seen, steps.seen[1:], strict=False):
        ended = now.terminated | now.truncated
        np.testing.assert_array_equal(now.next_obs[~ended], after.obs[~ended])
        assert (np.abs(now.next_obs[ended][:, [0, 2]]) > [2.4, 0.2094]).any(1).all()
