"""APPO: PPO's loss on the targets of V-trace, its target network, and runs that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.unrolls import UnrollBatch
from sharpwave.testing.bits import state_of
from tests.envs import resumable
from tests.unit.algorithms.unrolls import STEPS, make, targets, unroll

BACKENDS = ("native", "torch")
V_TRACE: dict[str, Any] = {"gamma": 0.97, "vtrace_lambda": 0.9}
ONE_STEP: dict[str, Any] = {"n_epochs": 1, "batch_size": 1000, "normalize_advantages": False}
SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 8, "hidden": (8,), "batch_size": 16}
SMALL["actors"] = "threads"  # which start at once


def unrolls() -> list[Any]:
    rng = np.random.default_rng(5)
    return [unroll(rng, n) for n in (2, 3)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_gradient_is_that_of_impala(backend: str) -> None:
    """The ratio to the policy from before the update is 1 while the policy has not moved."""
    appo, impala = (
        make(cls, n_actors=2, backend=backend, pg_rho_bar=0.7, **V_TRACE, **options)
        for cls, options in ((sw.APPO, ONE_STEP), (sw.IMPALA, {}))
    )
    np.testing.assert_array_equal(appo.weights(), impala.weights())
    for learner in (appo, impala):
        learner.update(UnrollBatch.of(unrolls(), learner.own))
    found, expected = np.asarray(appo.flat.grad), np.asarray(impala.flat.grad)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_update_is_that_of_ppo_on_targets_of_the_target_network(backend: str) -> None:
    """Its policy is what ratios are taken to, and its values are those of V-trace."""
    options: dict[str, Any] = {"backend": backend, "target_update_freq": 3, **V_TRACE, **ONE_STEP}
    appo = make(sw.APPO, n_actors=2, **options)
    noise = np.random.default_rng(6).normal(size=appo.weights().shape)
    others = appo.weights() + 0.3 * noise.astype(np.float32)
    given = unrolls()

    # The targets are made with the weights of the target network, which are others by then.
    kept = appo.weights()
    appo.follow_weights(others)
    vs, advantages = (
        np.concatenate(parts, axis=1).reshape(-1).astype(np.float32)
        for parts in zip(*(targets(appo, one) for one in given), strict=True)
    )
    obs, actions = (
        torch.from_numpy(np.concatenate([getattr(one, name) for one in given], 1).reshape(-1, *x))
        for name, x in (("obs", (3,)), ("actions", ()))
    )
    with torch.no_grad():
        old_log_probs, _, old_values = appo.policy.evaluate(obs, actions)
    appo.networks["target"].load_state_dict(appo.networks["policy"].state_dict())
    appo.follow_weights(kept)

    ppo = make(sw.PPO, backend="torch", learning_rate=1e-3, ent_coef=0.01, **ONE_STEP)
    ppo.policy.load_state_dict(appo.policy.state_dict())
    corrected = torch.from_numpy(advantages), torch.from_numpy(vs)
    ppo.update(OnPolicyBatch(obs, actions, old_log_probs, old_values, *corrected))
    metrics = appo.update(UnrollBatch.of(given, appo.own))
    assert np.abs(ppo.weights() - kept).max() > 5e-4
    assert float(metrics["clip_fraction"]) > 0
    np.testing.assert_allclose(appo.weights(), ppo.weights(), atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_target_takes_the_weights_after_some_updates(backend: str) -> None:
    learner = make(sw.APPO, n_actors=2, backend=backend, target_update_freq=3, batch_size=8)
    batch = UnrollBatch.of(unrolls(), learner.own)

    def target() -> Any:
        named = learner.networks["target"].state_dict().values()
        return np.concatenate([np.asarray(x).reshape(-1) for x in named])

    first = learner.weights()
    for update in range(1, 7):
        before = target()
        learner.update(batch)
        is_taken = update % 3 == 0
        np.testing.assert_array_equal(target(), learner.weights() if is_taken else before)
    assert np.abs(target() - first).max() > 1e-3


def test_without_a_target_network_there_is_none() -> None:
    assert set(make(sw.APPO, backend="torch").networks) == {"policy"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_passes_and_minibatches_are_those_of_ppo(backend: str) -> None:
    learner = make(sw.APPO, n_actors=2, backend=backend, n_epochs=3, batch_size=STEPS)
    learner.update(UnrollBatch.of(unrolls(), learner.own))
    steps = learner.optimizers["policy"].arrays()["steps"]
    assert int(np.asarray(steps).reshape(-1)[0]) == 3 * 5
    assert learner.updates == 1


@pytest.mark.long(but=["native-native"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])
def test_a_deterministic_run_goes_on_from_a_checkpoint_bit_for_bit(
    backend: str, world: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {**SMALL, "backend": backend, "deterministic": True, "seed": 4}
    options |= {"target_update_freq": 2}
    whole, first = (sw.APPO(world, **options) for _ in range(2))
    first.train(192)
    first.save(tmp_path / "half")
    again = sw.APPO.from_checkpoint(tmp_path / "half", env=world)
    again.learner.config = first.learner.config  # the same schedule
    whole.train(192)
    assert state_of(first) == state_of(whole)
    for agent in (whole, first, again):
        agent.train(192)
    assert state_of(whole) == state_of(first) == state_of(again)
    for agent in (whole, first, again):
        agent.close()


def test_native_code_computes_by_itself() -> None:
    agent = sw.APPO("CartPole-v1", seed=1, target_update_freq=2, **SMALL)
    assert agent.backend == "native"
    assert agent.collection_reason is None
    metrics = agent.train(640)
    assert metrics["lag_max"] <= 4
    agent.close()


def test_impossible_options_are_named() -> None:
    with pytest.raises(ValueError, match="target_update_freq must be greater than 0, got 0"):
        sw.APPO("CartPole-v1", target_update_freq=0)
