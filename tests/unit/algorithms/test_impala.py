"""IMPALA: its targets on a fixed batch, its identity with A2C, its lag, and runs that go on."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.unrolls import UnrollBatch, Valued
from sharpwave.testing.bits import state_of
from tests.envs import resumable, resumable_pendulum, vectorized
from tests.unit.algorithms.unrolls import STEPS, make, targets, unroll

BACKENDS = ("native", "torch")
SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "actors": "threads"}


V_TRACE: dict[str, Any] = {"gamma": 0.97, "vtrace_lambda": 0.9}
BARS = {"rho_bar": 1.3, "c_bar": 0.8, "pg_rho_bar": 0.7}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bars", [{}, BARS], ids=["bars of 1", "other bars"])
def test_an_update_is_that_of_a2c_on_targets_of_the_values_that_learn(
    backend: str, bars: dict[str, float]
) -> None:
    """Values of the actors, which are random here, would give other weights."""
    rng = np.random.default_rng(5)
    unrolls = [unroll(rng, n) for n in (2, 3)]
    impala = make(n_actors=2, backend=backend, **V_TRACE, **bars)
    a2c = make(sw.A2C, backend="torch", ent_coef=0.01, learning_rate=1e-3)
    a2c.policy.load_state_dict(impala.policy.state_dict())
    vs, advantages = (
        np.concatenate(parts, axis=1).reshape(-1)
        for parts in zip(*(targets(impala, one, **bars) for one in unrolls), strict=True)
    )
    before = a2c.weights()

    impala.update(UnrollBatch.of(unrolls, impala.own))
    rows = {
        name: np.concatenate([getattr(one, name) for one in unrolls], axis=1)
        for name in ("obs", "actions", "log_probs", "values")
    }
    columns: dict[str, Any] = {
        **{name: torch.from_numpy(x.reshape(-1, *x.shape[2:])) for name, x in rows.items()},
        "advantages": torch.from_numpy(advantages.astype(np.float32)),
        "returns": torch.from_numpy(vs.astype(np.float32)),
    }
    a2c.update(OnPolicyBatch(**columns))
    assert np.abs(a2c.weights() - before).max() > 1e-3
    np.testing.assert_allclose(impala.weights(), a2c.weights(), atol=2e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_lag_the_gradient_is_that_of_a2c(backend: str) -> None:
    """With a ratio of 1, V-trace is the return of the rollout, also where episodes were cut."""
    agent = sw.A2C(resumable, n_envs=4, n_steps=64, hidden=(8,), seed=3, backend=backend)
    rollout = agent.collector.collect(agent.config.gamma, 1.0)
    assert rollout.terminated.any()
    batch = OnPolicyBatch.of(agent.collector.columns(rollout, sequences=False), agent.learner.own)
    fresh: Any = sw.IMPALA(
        resumable, n_actors=1, n_envs=4, n_steps=64, hidden=(8,), seed=3, backend=backend
    )
    impala = fresh.learner
    impala.load_state_dict(agent.learner.state_dict())
    rollout.last_obs = agent.collector.obs
    rollout.final_obs = np.zeros((int((rollout.terminated | rollout.truncated).sum()), 4), "f4")
    assert not (rollout.truncated & ~rollout.terminated).any()

    impala.update(UnrollBatch.of([rollout], impala.own))
    agent.update(batch)
    found, expected = np.asarray(impala.flat.grad), np.asarray(agent.learner.flat.grad)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_the_sum_of_the_losses_is_their_mean_times_the_steps() -> None:
    batch = [unroll(np.random.default_rng(5), 3)]
    gradients = []
    for reduction in ("mean", "sum"):
        learner = make(n_actors=1, reduction=reduction, backend="torch", max_grad_norm=1e9)
        learner.update(UnrollBatch.of(batch, learner.own))
        gradients.append(learner.flat.grad.clone())
    torch.testing.assert_close(gradients[1], 3 * STEPS * gradients[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("option", "kind"), [({"reduction": "sum"}, "RMSprop"), ({"optimizer": "adam"}, "Adam")]
)
def test_what_native_code_cannot_do_torch_does(option: dict[str, Any], kind: str) -> None:
    agent = sw.IMPALA("CartPole-v1", seed=1, **SMALL, **option)
    (name,) = option
    assert agent.backend == "torch"
    assert name in agent.backend_reason
    assert type(agent.optimizers["policy"]).__name__ == kind
    with pytest.raises(ValueError, match=f"got 'native': {name} is"):
        sw.IMPALA("CartPole-v1", backend="native", **option)
    agent.close()


# Runs


@pytest.mark.long(but=["native-native"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])
def test_a_deterministic_run_goes_on_from_a_checkpoint_bit_for_bit(
    backend: str, world: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {**SMALL, "backend": backend, "deterministic": True, "seed": 4}
    whole, first = (sw.IMPALA(world, **options) for _ in range(2))
    first.train(192)
    first.save(tmp_path / "half")
    again = sw.IMPALA.from_checkpoint(tmp_path / "half", env=world)
    again.learner.config = first.learner.config  # the same schedule
    whole.train(192)
    assert state_of(first) == state_of(whole)
    for agent in (whole, first, again):
        agent.train(192)
    assert state_of(whole) == state_of(first) == state_of(again)
    assert whole.timesteps == again.timesteps == 384
    np.testing.assert_array_equal(whole.episodes.returns, again.episodes.returns)
    for agent in (whole, first, again):
        agent.close()


@pytest.mark.parametrize("kind", [sw.IMPALA, sw.APPO])
def test_actors_come_before_environments_where_arguments_have_no_names(kind: Any) -> None:
    agent = kind("CartPole-v1", 3, 4, 7, actors="threads", hidden=(8,))
    assert (agent.config.n_actors, agent.config.n_envs, agent.seed) == (3, 4, 7)
    agent.close()


@pytest.mark.parametrize("deterministic", [False, True])
def test_train_goes_on_and_counts_the_steps_of_all_actors(deterministic: bool) -> None:
    agent = sw.IMPALA("CartPole-v1", n_actors=3, seed=1, deterministic=deterministic, **SMALL)
    for rounds in (1, 2):
        metrics = agent.train(960)
        learned, dropped = 96 * agent.learner.updates, 32 * metrics["dropped_unrolls"]
        assert agent.timesteps == learned + dropped >= 960 * rounds
        assert metrics["lag_max"] == 1 if deterministic else metrics["lag_max"] <= 4
        if deterministic:
            assert learned == 960 * rounds
        assert metrics["actors_alive"] == 3
        assert 0 <= metrics["learner_idle"] <= 1
    agent.close()


def test_unrolls_that_are_too_old_are_dropped_and_counted() -> None:
    agent = sw.IMPALA("CartPole-v1", seed=1, max_lag=0, **SMALL)
    metrics = agent.train(960)
    assert metrics["lag_max"] == 0
    assert metrics["dropped_unrolls"] > 0
    learned = agent.learner.updates * 2 * 32
    assert agent.timesteps == learned + 32 * metrics["dropped_unrolls"]
    agent.close()


def test_more_unrolls_may_wait_than_an_update_takes() -> None:
    agent = sw.IMPALA("CartPole-v1", seed=1, batch_unrolls=1, max_in_flight=4, **SMALL)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    while agent.loop.fleet.stats().waiting < 4:
        time.sleep(0.01)
    lags = []

    class Watch(sw.Callback):
        def on_train_batch(self, *, lag_max: float, **_: Any) -> None:
            lags.append(lag_max)

    metrics = agent.train(1280, callbacks=Watch())
    assert lags[:4] == [0, 1, 2, 3]
    assert max(lags) <= 4
    assert agent.timesteps == 32 * (agent.learner.updates + metrics["dropped_unrolls"])
    agent.close()


def test_environments_that_reset_in_the_next_step() -> None:
    """Rows that are only resets are no steps, and reach no loss."""
    env = vectorized([resumable_pendulum] * 2, "next_step")
    agent: Any = sw.IMPALA(env, n_actors=1, n_steps=40, hidden=(8,), seed=1, deterministic=True)
    batch = agent.loop.collect()
    shapes = ((40, 2), (40, 2), 2)
    valued = Valued(*(agent.learner.own(np.zeros(shape, np.float32)) for shape in shapes))
    rows = batch.corrected(valued, agent.config)
    assert (~batch.valid).sum() == 2
    assert len(rows.obs) == 78
    assert agent.timesteps == 78
    agent.close()


def test_actors_have_seeds_of_their_own() -> None:
    agent: Any = sw.IMPALA("CartPole-v1", seed=1, deterministic=True, **SMALL)
    batch = agent.loop.collect()
    assert not np.array_equal(batch.obs[:, :4], batch.obs[:, 4:])
    assert not np.array_equal(batch.obs[0, 0], batch.obs[0, 4])
    agent.close()


def test_a_step_that_cut_an_episode_is_told_with_its_true_observation() -> None:
    agent = sw.IMPALA(
        resumable_pendulum, n_steps=40, n_envs=2, hidden=(8,), seed=1, actors="threads"
    )
    seen: list[Any] = []

    class Watch(sw.Callback):
        def on_step(self, *, transitions: Any, **_: Any) -> None:
            seen.append(copy.deepcopy(transitions))

    agent.train(160, callbacks=Watch())
    cut = [step for step in seen if step.truncated.any()]
    assert len(seen) >= 80
    assert len(cut) >= 2
    for step in cut:  # a pendulum does not jump in a step, as a reset would
        assert np.abs(step.next_obs - step.obs)[:, :2].max() < 0.6
    agent.close()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no actor": ({"n_actors": 0}, "n_actors must be greater than 0, got 0"),
    "no lag": ({"deterministic": True, "max_lag": 0}, "max_lag must be at least 1"),
    "more in flight than may be old": (
        {"n_actors": 8, "batch_unrolls": 2, "max_lag": 2},
        "max_lag must be at least 3 where 8 unrolls are in flight and an update takes 2, got 2",
    ),
    "more of them by hand": (
        {"max_in_flight": 9, "max_lag": 3},
        "max_lag must be at least 4 where 9 unrolls are in flight",
    ),
    "one of two": ({"deterministic": True, "batch_unrolls": 1}, "batch_unrolls must be n_actors"),
    "more in flight than one of each": (
        {"deterministic": True, "max_in_flight": 4},
        "max_in_flight must be n_actors where deterministic is True, .* got 4 for 2",
    ),
    "none waits": ({"max_in_flight": 0}, "max_in_flight must be at least 1, got 0"),
    "no unroll": ({"batch_unrolls": 0}, "batch_unrolls must be greater than 0"),
    "bar": ({"rho_bar": -1.0}, "rho_bar must be"),
    "statistics": ({"normalize_obs": True}, "normalize_obs must be False"),
}


@pytest.mark.parametrize("case", BAD)
def test_impossible_options_are_named(case: str) -> None:
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        sw.IMPALA("CartPole-v1", **options)


def test_one_environment_without_an_id_is_not_enough_for_two_actors() -> None:
    with pytest.raises(ValueError, match="n_actors must be 1 where env_id is an environment with"):
        sw.IMPALA(vectorized([resumable] * 2, "same_step"))


@pytest.mark.long
def test_a_run_folder_has_the_measures_of_the_actors(tmp_path: Path) -> None:
    agent = sw.IMPALA("CartPole-v1", seed=1, **SMALL)
    agent.train(2048, run_dir=tmp_path / "run")
    agent.close()
    written = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert {"lag", "lag_max", "dropped_unrolls", "actors_alive", "learner_idle"} <= {
        *written[0].split(",")
    }
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Dropped unrolls" in report
