"""HybridPPO collects in native code, with either learner, overlapped or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import NativeRollouts, NonFiniteError
from sharpwave.envs import NativeVectorEnv
from sharpwave.train.batch import OnPolicyBatch

SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 16, "batch_size": 32, "hidden": (8, 8), "seed": 3}
LEARNERS = pytest.mark.parametrize("backend", ["native", "torch"])
OVERLAP = pytest.mark.parametrize("overlap", [False, True])
BY_THE_CLOCK = {"sps", "collection_time_pct", "training_time_pct"}


def made(env: Any = "CartPole-v1", **options: Any) -> sw.HybridPPO:
    return sw.HybridPPO(env, **{**SMALL, **options})


def weights(algo: Any) -> Any:
    return algo.flat.block.copy()


class Metrics(sw.Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_train_batch(self, *, algo: Any, step: int, **metrics: Any) -> None:
        del algo
        numbers = {name: metrics[name] for name in metrics.keys() - BY_THE_CLOCK}
        self.rows.append({"step": step, **numbers})


@LEARNERS
@OVERLAP
class TestEvery:
    def test_trains_and_says_how_the_time_was_spent(self, backend: str, overlap: bool) -> None:
        algo = made(backend=backend, overlap=overlap)
        before = weights(algo)
        metrics = algo.train(256)
        assert algo.backend == backend
        assert isinstance(algo.collector, NativeRollouts)
        assert algo.timesteps == 256
        assert not np.array_equal(weights(algo), before)
        assert metrics["collection_time_pct"] + metrics["training_time_pct"] == pytest.approx(100)
        summary = algo.timing_summary()
        assert summary["collection_s"] > 0
        assert summary["training_s"] > 0
        algo.close()

    @pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
    def test_the_same_seed_gives_the_same_run(self, backend: str, overlap: bool, env: str) -> None:
        runs = []
        for _ in range(2):
            algo = made(env, backend=backend, overlap=overlap)
            listener = Metrics()
            algo.train(640, callbacks=listener)
            runs.append((listener.rows, weights(algo).tolist()))
            algo.close()
        np.testing.assert_equal(runs[0], runs[1])

    def test_a_run_in_two_parts_is_the_same(self, backend: str, overlap: bool) -> None:
        whole, parts = (made(backend=backend, overlap=overlap, anneal_lr=False) for _ in range(2))
        whole.train(512)
        parts.train(128)
        parts.train(384)
        np.testing.assert_array_equal(weights(whole), weights(parts))

    def test_goes_on_bit_for_bit(self, backend: str, overlap: bool, tmp_path: Path) -> None:
        algo = made(backend=backend, overlap=overlap, anneal_lr=False)
        algo.train(256)
        algo.save(tmp_path / "a")
        algo.train(256)
        again = sw.HybridPPO.from_checkpoint(tmp_path / "a")
        again.train(256)
        np.testing.assert_array_equal(weights(again), weights(algo))
        assert again.episodes.state_dict()["count"] == algo.episodes.count

    def test_rollouts_hold_what_the_policy_thought(self, backend: str, overlap: bool) -> None:
        algo = made("Pendulum-v1", backend=backend, overlap=overlap)
        algo.train(256)
        algo._follow_policy()
        rollout = algo.collector.collect(0.9, 0.9)
        assert rollout is not None
        batch = OnPolicyBatch.from_rollout(rollout, torch.device("cpu"), None)
        evaluated = algo.policy.evaluate(batch.obs, batch.actions)
        torch.testing.assert_close(evaluated.log_probs, batch.log_probs, rtol=1e-4, atol=1e-5)

    def test_a_callback_stops_it(self, backend: str, overlap: bool) -> None:
        class Stop(sw.Callback):
            def on_step(self, *, step: int, **_: Any) -> bool:
                return step < 100

        algo = made(backend=backend, overlap=overlap)
        algo.train(1024, callbacks=Stop())
        assert 100 <= algo.timesteps < 128
        algo.train(256)


@OVERLAP
def test_both_learners_start_alike_and_stay_close(overlap: bool) -> None:
    options: dict[str, Any] = {"batch_size": 64, "n_epochs": 1, "overlap": overlap}
    native, other = made(backend="native", **options), made(backend="torch", **options)
    np.testing.assert_array_equal(weights(native), weights(other))
    for algo in (native, other):
        algo.train(192)
    np.testing.assert_allclose(weights(native), weights(other), rtol=1e-4, atol=1e-5)


def test_without_overlap_it_is_ppo_but_for_its_draws() -> None:
    hybrid, ppo = made(), sw.PPO("CartPole-v1", **SMALL)
    ppo.generator.set_state(hybrid._draws.get_state())
    ours = hybrid.collector.collect(0.9, 0.9)
    theirs = ppo.collector.collect(0.9, 0.9)
    assert ours is not None
    assert theirs is not None
    np.testing.assert_array_equal(ours.advantages, theirs.advantages)


def test_overlapped_rollouts_are_one_update_old() -> None:
    seen: list[Any] = []
    acted: list[Any] = []

    class Watched(sw.HybridPPO):
        def _collect_next(self) -> None:
            acted.append(self._acting.data.copy())
            super()._collect_next()

    class Watch(sw.Callback):
        def on_train_batch(self, *, algo: Any, **_: Any) -> None:
            seen.append(weights(algo))

    algo = Watched("CartPole-v1", overlap=True, **SMALL)
    first = weights(algo)
    algo.train(64 * 5, callbacks=Watch())
    # Rollouts 0 and 1 are of the first weights, rollout k + 1 of those after k updates.
    np.testing.assert_array_equal(acted[0], first)
    np.testing.assert_array_equal(acted[1], first)
    for k in range(2, len(acted)):
        np.testing.assert_array_equal(acted[k], seen[k - 2])


def test_what_native_code_cannot_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"env_id must be one of CartPole-v1.*native"):
        made("FrozenLake-v1")
    with pytest.raises(ValueError, match="without normalisation"):
        made(normalize_obs=True)
    with pytest.raises(ValueError, match="env_id must be one of"):
        made(NativeVectorEnv("CartPole-v1", 4, autoreset_mode="next_step"))
    with pytest.raises(ValueError, match=r"hybrid_ppo acts in native code.*recurrent"):
        made(recurrent="lstm")


@OVERLAP
def test_weights_that_are_no_numbers_end_the_run(overlap: bool) -> None:
    algo = made(overlap=overlap)
    algo.train(64)
    algo.flat.block[:] = np.nan
    with pytest.raises(NonFiniteError):
        algo.train(256)


def test_it_learns_cartpole() -> None:
    algo = sw.HybridPPO.preset("CartPole-v1", total_timesteps=60_000, seed=1)
    algo.train()
    assert algo.evaluate(20).mean >= 400
