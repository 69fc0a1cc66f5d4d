"""Normalization in runs that learn from replay: raw steps in, normalized ones out."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import VectorWrapper

import sharpwave as sw
from sharpwave.envs import PythonVectorEnv, VecNormalize
from sharpwave.learners import Acted
from tests.envs import CountingEnv, MaskedEnv, NestedEnv, vectorized
from tests.unit.loops.replay_runs import Spy, spy

KINDS = ["own", "next_step", "same_step", "disabled"]
BOTH: dict[str, Any] = {"normalize_obs": True, "normalize_rewards": True}

kinds = pytest.mark.parametrize("kind", KINDS)


def env_of(kind: str) -> Any:
    makers: list[Any] = [
        partial(CountingEnv, (3, 5), 0, "alternating"),
        partial(CountingEnv, (1, 4), 1, "truncated"),
    ]
    return PythonVectorEnv(makers) if kind == "own" else vectorized(makers, kind)


def stored(run: Spy) -> dict[int, dict[str, Any]]:
    """The raw steps of each environment, in order."""
    ids = run.buffer.indices()
    return {i: run.buffer.gather(ids[ids % run.env.num_envs == i]) for i in range(run.env.num_envs)}


@kinds
def test_statistics_are_those_of_everything_shown(kind: str) -> None:
    run = spy(env_of(kind), gamma=0.9, **BOTH)
    run.train(60)
    shown, returns = [], []
    for batch in stored(run).values():
        ended, total = True, 0.0
        for t in range(len(batch["rewards"])):
            if ended:
                shown.append(batch["obs"][t])
                total = 0.0
            shown.append(batch["next_obs"][t])
            total = 0.9 * total + float(batch["rewards"][t])
            returns.append(total)
            ended = bool(batch["terminated"][t] or batch["truncated"][t])
    stats = run.normalizer.get_obs_rms()
    assert stats.count == len(shown)
    np.testing.assert_allclose(stats.mean, np.mean(shown, 0), rtol=1e-5)
    np.testing.assert_allclose(stats.var, np.var(shown, 0), rtol=1e-4)
    assert run.normalizer.reward_std == pytest.approx(np.std(returns), rel=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_are_normalized_by_the_newest_statistics(n_step: int) -> None:
    run = spy(env_of("own"), n_step=n_step, gamma=0.9, **BOTH)
    run.train(60)
    sampler, normalizer = run.sampler, run.normalizer
    assert sampler.normalizer is not None
    sampler.normalizer.refresh()
    drawn = {name: value.clone() for name, value in sampler.draw().items()}
    batch = sampler.as_batch(drawn)
    for name in ("obs", "next_obs"):
        expected = normalizer.normalize_obs(drawn[name].numpy())
        np.testing.assert_allclose(getattr(batch, name), expected, rtol=1e-4, atol=1e-5)
        assert (drawn[name][:, 2] % 1 == 0).all()  # as they were
    expected = drawn["rewards"].numpy() / normalizer.reward_std
    np.testing.assert_allclose(batch.rewards, expected, rtol=1e-5)
    assert run.batches[0].obs[:, 1].abs().max() < 10


def test_old_steps_follow_new_statistics() -> None:
    run = spy(**BOTH)
    run.train(20)
    drawn = {name: value.clone() for name, value in run.sampler.draw(seed=1).items()}
    before = run.sampler.as_batch(drawn).obs.clone()
    run.train(100)
    run.sampler.normalizer.refresh()
    assert not torch.allclose(run.sampler.as_batch(drawn).obs, before)


def test_the_policy_sees_normalized_observations() -> None:
    run = spy(learning_starts=5, **BOTH)
    run.train(40)
    raw = run.collector.obs
    expected = run.normalizer.normalize_obs(raw)
    run.train(1)
    np.testing.assert_allclose(run.acted[-1], expected, rtol=1e-6)
    assert not np.allclose(run.acted[-1], raw)
    seen: list[Any] = []

    def act(obs: Any, **_: Any) -> Acted:
        seen.append(obs)
        return Acted(torch.zeros(1, dtype=torch.int64))

    run.learner.act = act
    run.predict(raw[0])
    np.testing.assert_allclose(seen[0], run.normalizer.normalize_obs(raw), rtol=1e-6)


def test_only_floats_are_normalized_in_a_nest() -> None:
    run = spy(NestedEnv, **BOTH)
    run.train(40)
    batch = run.batches[-1]
    assert batch.obs["parts"][0].dtype == torch.uint8
    assert batch.obs["parts"][1].dtype == torch.int64
    assert batch.obs["where"].dtype == torch.float32
    assert batch.obs["parts"][2].dtype == torch.float32


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_masks_are_left_alone(backend: str) -> None:
    options = {"hidden": (4,), "batch_size": 8, "learning_starts": 10, "backend": backend, **BOTH}
    run = sw.DQN(partial(MaskedEnv, (4,)), **options)
    run.train(40)
    batch = run.sampler.sample()
    assert batch.masks is not None
    assert np.asarray(batch.masks).dtype == bool
    assert batch.obs.shape == (8, 3)
    assert run.normalizer.get_obs_rms().count > 40


def test_only_rewards() -> None:
    run = spy(normalize_rewards=True)
    run.train(40)
    assert (run.batches[-1].obs[:, 2] % 1 == 0).all()
    drawn = run.sampler.draw()
    raw = drawn["rewards"].clone()
    scaled = run.sampler.as_batch(drawn).rewards
    torch.testing.assert_close(scaled * run.normalizer.reward_std, raw)
    assert not torch.allclose(scaled, raw)


def test_a_wrapper_of_ones_own_gives_its_settings_and_gets_the_statistics() -> None:
    wrapper = VecNormalize(env_of("own"), norm_reward=False, clip_obs=0.5)
    run = spy(wrapper)
    run.train(60)
    assert wrapper.get_obs_rms().count > 60
    raw = run.buffer.gather(run.buffer.indices())
    assert raw["obs"][:, 2].max() == 4
    assert run.batches[-1].obs.abs().max() == 0.5
    assert run.batches[-1].rewards.min() >= 1


def test_a_wrapper_below_another_is_refused() -> None:
    class Other(VectorWrapper):
        pass

    with pytest.raises(ValueError, match="VecNormalize outermost"):
        spy(Other(VecNormalize(env_of("own"))))


def test_statistics_that_are_frozen_stay() -> None:
    run = spy(**BOTH)
    run.normalizer.training = False
    run.train(30)
    assert run.normalizer.get_obs_rms().count == 0


def test_returns_of_episodes_are_raw() -> None:
    run = spy(partial(CountingEnv, (2,)), learning_starts=1000, **BOTH)
    run.train(40)
    assert 2.3 <= run.episodes.mean_return <= 2.33
