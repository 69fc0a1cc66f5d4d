"""Rollouts of tensors are those of arrays, wherever the environments are."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import EpisodeStats, NonFiniteError, OnPolicyCollector, Rollout
from sharpwave.core.tree import leaves
from sharpwave.tensors import HostSteps, TensorCollector, TensorEpisodes
from tests.envs import BoxActionEnv, CountingEnv, MaskedEnv, NestedEnv
from tests.unit.envs.tensor_envs import NamedPoints, Points

LENGTHS = (3, 7, 1)
OPTIONS: dict[str, Any] = {"n_envs": 3, "n_steps": 16, "hidden": (8,), "backend": "torch"}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "terminated": (partial(CountingEnv, LENGTHS), {}),
    "truncated": (partial(CountingEnv, LENGTHS, ends="truncated"), {}),
    "alternating": (partial(CountingEnv, LENGTHS, ends="alternating"), {}),
    "both": (partial(CountingEnv, LENGTHS, ends="both"), {}),
    "nested": (partial(NestedEnv, LENGTHS, ends="truncated"), {}),
    "masks": (partial(MaskedEnv, LENGTHS), {}),
    "continuous": (partial(BoxActionEnv, LENGTHS, ends="truncated"), {}),
    "lstm": (partial(CountingEnv, LENGTHS, ends="truncated"), {"recurrent": "lstm"}),
    "normalized": (
        partial(CountingEnv, LENGTHS, ends="truncated"),
        {"normalize_obs": True, "normalize_rewards": True},
    ),
}


def ppo(env: Any, **options: Any) -> Any:
    return sw.PPO(env, **{**OPTIONS, **options})


def with_arrays(algorithm: Any) -> OnPolicyCollector:
    return OnPolicyCollector(
        algorithm.env,
        algorithm.actor,
        algorithm.action_map,
        n_steps=algorithm.config.n_steps,
        seed=algorithm.learner.seeds.env,
    )


def with_tensors(algorithm: Any) -> TensorCollector:
    device = torch.device("cpu")
    return TensorCollector(
        HostSteps(algorithm.env, algorithm.action_map, device),
        algorithm.actor,
        n_envs=algorithm.config.n_envs,
        n_steps=algorithm.config.n_steps,
        seed=algorithm.learner.seeds.env,
        device=device,
    )


def assert_same_rollout(rollout: Rollout, collector: TensorCollector) -> None:
    assert collector.buffer is not None
    columns = collector.columns(collector.buffer, sequences=True)
    assert (columns["masks"] is None) == (rollout.masks is None)
    for name, column in columns.items():
        if column is None:
            continue
        expected = dict(leaves(getattr(rollout, name)))
        found = dict(leaves(column))
        assert found.keys() == expected.keys()
        for path, leaf in found.items():
            np.testing.assert_allclose(leaf, expected[path], atol=1e-6, err_msg=f"{name} {path}")


@pytest.mark.long(but=["terminated"])
@pytest.mark.parametrize("case", CASES)
def test_rollouts_are_those_of_arrays(case: str) -> None:
    env, options = CASES[case]
    one, other = ppo(env, seed=42, **options), ppo(env, seed=42, **options)
    arrays, tensors = with_arrays(one), with_tensors(other)
    for _ in range(3):
        for algorithm in (one, other):
            algorithm.actor.begin_rollout()
        rollout = arrays.collect(0.9, 0.8)
        assert rollout is not None
        assert tensors.collect(0.9, 0.8) is tensors.buffer
        assert_same_rollout(rollout, tensors)
    assert tensors.timesteps == arrays.timesteps
    assert tensors.episodes.count == arrays.episodes.count
    assert tensors.episodes.lengths == list(arrays.episodes.lengths)
    np.testing.assert_allclose(tensors.episodes.returns, arrays.episodes.returns, rtol=1e-6)
    assert tensors.episodes.mean_return == pytest.approx(arrays.episodes.mean_return, rel=1e-6)
    assert tensors.episodes.mean_length == arrays.episodes.mean_length


@pytest.mark.long(but=["True-Points"])
@pytest.mark.parametrize("make", [Points, NamedPoints])
@pytest.mark.parametrize("tells_final", [True, False])
def test_environments_of_tensors_give_the_same_as_through_arrays(
    make: Any, tells_final: bool
) -> None:
    envs = (make(4, tells_final=tells_final) for _ in range(2))
    one, other = (ppo(env, n_envs=4, n_steps=64, seed=42) for env in envs)
    assert isinstance(other.collector, TensorCollector)
    arrays = with_arrays(one)
    for _ in range(2):
        rollout = arrays.collect(0.9, 0.8)
        assert rollout is not None
        assert rollout.truncated.any()
        other.collector.collect(0.9, 0.8)
        if tells_final:
            assert_same_rollout(rollout, other.collector)
    assert other.episodes.lengths == list(arrays.episodes.lengths)


def test_an_unknown_last_observation_is_worth_what_the_one_before_it_was() -> None:
    algorithm = ppo(Points(1, limit=3, tells_final=False), n_envs=1, n_steps=3)
    buffer = algorithm.collector.collect(0.5, 1.0)
    values, rewards = buffer.stored("value")[:, 0], buffer.stored("reward")[:, 0]
    returned = rewards[2] + 0.5 * values[2]
    assert buffer.returns[2, 0].item() == pytest.approx(returned.item(), rel=1e-5)


@pytest.mark.long
def test_an_agent_learns_among_tensors() -> None:
    settings: dict[str, Any] = {"gamma": 0.9, "learning_rate": 3e-3, "hidden": (32,), "seed": 1}
    agent = sw.PPO(Points(64), n_steps=16, batch_size=256, backend="torch", **settings)
    assert isinstance(agent.collector, TensorCollector)
    before = agent.evaluate(64, env=Points(64)).mean
    agent.train(60_000)
    after = agent.evaluate(64, env=Points(64)).mean
    assert after > before / 3  # returns are negative
    assert agent.episodes.mean_return > before / 2


@pytest.mark.parametrize("cls", [sw.SAC, sw.A2C])
def test_other_agents_see_arrays_of_them(cls: Any) -> None:
    env = Points(4)
    options = {"learning_starts": 64} if cls is sw.SAC else {}
    agent = cls(env, hidden=(8,), **options)
    agent.train(128)
    assert agent.predict([0.1, 0.2]).shape == (1,)
    agent.close()
    assert env.closed


@pytest.mark.long
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    def run(steps: int, algorithm: Any) -> Any:
        algorithm.train(steps)
        return algorithm

    make = partial(sw.PPO, n_steps=16, hidden=(8,), backend="torch", anneal_lr=False, seed=3)
    whole = run(640, make(Points(4)))
    half = run(320, make(Points(4)))
    half.save(tmp_path / "half")
    resumed = run(320, sw.PPO.from_checkpoint(tmp_path / "half", env_id=Points(4)))
    torch.testing.assert_close(resumed.flat.data, whole.flat.data, rtol=0, atol=0)
    assert resumed.episodes.returns == whole.episodes.returns


@pytest.mark.long
@pytest.mark.parametrize("backends", [("torch", "native"), ("native", "torch")])
def test_a_run_goes_on_with_the_other_backend(backends: tuple[str, str], tmp_path: Path) -> None:
    first = sw.PPO(Points(4), n_steps=16, hidden=(8,), backend=backends[0])
    first.train(320)
    first.save(tmp_path / "run")
    second = sw.PPO.from_checkpoint(tmp_path / "run", env_id=Points(4), backend=backends[1])
    assert second.backend == backends[1]
    assert list(second.episodes.returns) == pytest.approx(list(first.episodes.returns))
    assert list(second.episodes.lengths) == list(first.episodes.lengths)
    assert second.episodes.count == first.episodes.count
    second.train(320)
    assert second.timesteps == 640
    assert second.episodes.count > first.episodes.count


@pytest.mark.parametrize("n_steps", [3, 150, 450])
def test_episodes_are_saved_and_read_by_either_kind(n_steps: int) -> None:
    rng = np.random.default_rng(n_steps)
    arrays, tensors = EpisodeStats(3), TensorEpisodes(3, torch.device("cpu"))
    for _ in range(n_steps):
        rewards, ended = rng.normal(size=3), rng.random(3) < 0.3
        arrays.update(rewards, ended)
        tensors.tracker.update(torch.from_numpy(ended), torch.from_numpy(rewards))
    others = TensorEpisodes(3, torch.device("cpu"))
    others.load_state_dict(arrays.state_dict())
    back = EpisodeStats(3)
    back.load_state_dict(tensors.state_dict())
    for _ in range(40):
        rewards, ended = rng.normal(size=3), rng.random(3) < 0.3
        for stats in (arrays, back):
            stats.update(rewards, ended)
        others.tracker.update(torch.from_numpy(ended), torch.from_numpy(rewards))
    found: tuple[Any, ...] = (back, others)
    for stats in found:
        assert stats.count == arrays.count
        assert list(stats.lengths) == list(arrays.lengths)
        np.testing.assert_allclose(list(stats.returns), list(arrays.returns))


def test_numbers_that_are_not_finite_stop_the_run() -> None:
    class Broken(Points):
        def step(self, actions: Any) -> Any:
            obs, rewards, *flags, infos = super().step(actions)
            return obs, rewards * torch.nan, *flags, infos

    with pytest.raises(NonFiniteError, match="step 64"):
        ppo(Broken(4), n_envs=4).train(128)


def test_a_rollout_that_is_given_up() -> None:
    collector = with_tensors(ppo(partial(CountingEnv, LENGTHS)))
    heard: list[float] = []

    def stop_at_five(reward: float, _: Any) -> bool:
        heard.append(reward)
        return len(heard) < 5

    assert collector.collect(0.9, 0.8, stop_at_five) is None
    assert collector.timesteps == 15
    assert collector.collect(0.9, 0.8) is not None
