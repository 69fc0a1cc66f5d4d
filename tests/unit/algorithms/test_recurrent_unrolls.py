"""Unrolls of recurrent policies: they are replayed from the memory that their actors had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave.collect import OnPolicyCollector, Rollout, UnrollCollector
from sharpwave.envs import make_vec_env
from sharpwave.learners.actor import FollowingActor
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.unrolls import UnrollBatch, value_unrolls
from sharpwave.testing.bits import state_of
from tests.envs import resumable, resumable_pendulum, vectorized
from tests.unit.algorithms.unrolls import STEPS, make, unroll

KINDS = ("lstm", "gru")
SMALL: dict[str, Any] = {"n_envs": 3, "n_steps": 8, "hidden": (8,), "recurrent_size": 5}


def remembered(rng: np.random.Generator, n: int, rows: int) -> Rollout:
    """An unroll amid episodes, whose actor remembers something."""
    one = unroll(rng, n)
    one.starts[1:] = (one.terminated | one.truncated)[:-1]
    one.starts[0] = rng.random(n) < 0.4
    one.state = rng.normal(size=(rows, n, 5)).astype(np.float32)
    return one


def step_by_step(policy: Any, one: Rollout) -> tuple[Any, Any, Any]:
    """Log-probabilities, values, and values of what followed, [T, N] each, one step at a time.

    The last are 0 where an episode terminated.
    """
    obs, actions, starts = (torch.from_numpy(x) for x in (one.obs, one.actions, one.starts))
    assert one.state is not None
    assert one.final_obs is not None
    found = np.zeros((3, *one.valid.shape))
    ends = 0
    for t, env in np.ndindex(*one.valid.shape):
        if env == 0 and t == 0:
            states = torch.from_numpy(one.state)
        if env == 0:
            now = {"state": states, "starts": starts[t]}
            acted = policy.act(obs[t], **now)
            with torch.no_grad():
                evaluated = policy.evaluate(
                    obs[t : t + 1], actions[t : t + 1], state=states, starts=starts[t : t + 1]
                )
            states = acted.state
            found[0, t], found[1, t] = evaluated.log_probs[0], acted.values
        mine = states[:, env : env + 1]
        following = one.last_obs[env] if t + 1 == STEPS else one.obs[t + 1, env]  # type: ignore[index]
        if one.terminated[t, env] or one.truncated[t, env]:
            following = one.final_obs[ends]
            ends += 1
        if not one.terminated[t, env]:
            (found[2, t, env],) = policy.values(torch.from_numpy(following[None]), state=mine)
    return found[0], found[1], found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_unrolls_are_valued_as_step_by_step(kind: str) -> None:
    learner = make(backend="torch", n_actors=2, recurrent=kind, recurrent_size=5)
    with torch.no_grad():
        learner.flat.data.mul_(2.0)  # so few layers would say next to nothing
    rng = np.random.default_rng(3)
    rollouts = [remembered(rng, n, 4 if kind == "lstm" else 2) for n in (2, 3)]
    assert all((one.truncated & ~one.terminated).any() for one in rollouts)
    log_probs, values, following = (
        np.concatenate(parts, axis=1)
        for parts in zip(*(step_by_step(learner.policy, one) for one in rollouts), strict=True)
    )
    batch = UnrollBatch.of(rollouts, learner.own)
    with torch.no_grad():
        valued = value_unrolls(learner.policy, batch)
    np.testing.assert_allclose(valued.log_probs, log_probs, atol=1e-5)
    np.testing.assert_allclose(valued.values, values, atol=1e-5)
    terminated, truncated = np.asarray(batch.terminated), np.asarray(batch.truncated)
    goes_on = ~terminated[-1] & ~truncated[-1]
    assert goes_on.any()
    np.testing.assert_allclose(valued.last_values[goes_on], following[-1][goes_on], atol=1e-5)
    times, envs = np.divmod(np.asarray(batch.cut_rows), terminated.shape[1])
    np.testing.assert_allclose(valued.cut_values, following[times, envs], atol=1e-5)


class Both(UnrollCollector):
    """Keeps the observations of an unroll, and has advantages by the values of its actor too."""

    def _write_ends(self, rollout: Rollout, t: int, step: Any) -> None:
        OnPolicyCollector._write_ends(self, rollout, t, step)
        super()._write_ends(rollout, t, step)

    def _finish(self, rollout: Rollout, gamma: float, gae_lambda: float) -> None:
        OnPolicyCollector._finish(self, rollout, gamma, gae_lambda)
        super()._finish(rollout, gamma, gae_lambda)


@pytest.mark.long(but=["ends-lstm"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [resumable, resumable_pendulum], ids=["ends", "is cut"])
def test_without_lag_the_gradient_is_that_of_a2c(kind: str, world: Any) -> None:
    options: dict[str, Any] = {**SMALL, "n_steps": 40, "recurrent": kind, "seed": 3}
    a2c: Any = sw.A2C(world, **options).learner
    impala: Any = sw.IMPALA(world, n_actors=1, **options).learner
    impala.load_state_dict(a2c.state_dict())
    env = make_vec_env(world, 3)
    actor = FollowingActor(a2c, 3, 7, None)
    collector = Both(env, actor, a2c.action_map, n_steps=40, seed=5)
    collector.collect(0.99, 1.0)
    rollout = collector.collect(0.99, 1.0)
    assert rollout is not None
    assert rollout.state is not None
    assert np.abs(rollout.state).max() > 0
    assert (rollout.truncated if world is resumable_pendulum else rollout.terminated).any()

    a2c.update(OnPolicyBatch.of(rollout.columns(sequences=True), a2c.own, a2c.own(rollout.state)))
    impala.update(UnrollBatch.of([rollout], impala.own))
    found, expected = np.asarray(impala.flat.grad), np.asarray(a2c.flat.grad)
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-5)
    env.close()


@pytest.mark.long(only=["processes"])
@pytest.mark.parametrize("actors", ["threads", "processes"])
@pytest.mark.parametrize("world", ["CartPole-v1", resumable], ids=["native", "python"])
def test_the_memory_of_actors_travels_with_their_unrolls(world: Any, actors: str) -> None:
    """With the weights that acted, the replay gives the log-probabilities of the actors."""
    agent: Any = sw.IMPALA(world, actors=actors, recurrent="lstm", seed=1, **SMALL)
    learner, fleet = agent.learner, agent.loop.fleet
    assert agent.backend == "torch"
    learner.flat.data.mul_(2.0)
    fleet.start(learner.weights(), 0)
    first: dict[int, Any] = {}
    for _ in range(500):
        one = fleet.receive(60.0)
        assert one is not None
        batch = UnrollBatch.of([one.rollout], learner.own)
        with torch.no_grad():
            valued = value_unrolls(learner.policy, batch)
        np.testing.assert_allclose(valued.log_probs, one.rollout.log_probs, atol=1e-5)
        if one.actor in first:
            assert np.abs(one.rollout.state).max() > 0
            np.testing.assert_array_equal(one.rollout.obs[0], first[one.actor])
        first[one.actor] = one.rollout.last_obs
        if len(first) == 2 and one.rollout.starts[1:].any():
            break
    assert len(first) == 2
    agent.close()


@pytest.mark.long
@pytest.mark.parametrize("cls", [sw.IMPALA, sw.APPO])
def test_a_deterministic_run_goes_on_from_a_checkpoint_bit_for_bit(
    cls: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {**SMALL, "recurrent": "gru", "deterministic": True, "seed": 4}
    options["actors"] = "threads"
    whole, first = (cls(resumable, **options) for _ in range(2))
    first.train(144)
    first.save(tmp_path / "half")
    again = cls.from_checkpoint(tmp_path / "half", env=resumable)
    again.learner.config = first.learner.config  # the same schedule
    whole.train(144)
    for agent in (whole, first, again):
        agent.train(144)
    assert state_of(whole) == state_of(first) == state_of(again)
    for agent in (whole, first, again):
        agent.close()


def test_rows_that_are_only_resets_have_no_weight() -> None:
    env = vectorized([resumable_pendulum] * 2, "next_step")
    options: dict[str, Any] = {"n_steps": 40, "recurrent": "lstm", "hidden": (8,), "seed": 1}
    agent: Any = sw.IMPALA(env, n_actors=1, deterministic=True, **options)
    batch = agent.loop.collect()
    rows = agent.learner.corrected(batch)
    assert (~batch.valid).sum() == 2
    assert rows.is_sequence
    assert rows.weights.sum() == 78
    batch.rewards[~batch.valid] = 1e6  # what such a row gives matters to nobody
    others = agent.learner.corrected(batch)
    for name in ("advantages", "returns"):
        found, expected = (getattr(one, name)[batch.valid] for one in (others, rows))
        torch.testing.assert_close(found, expected)
    losses = [agent.learner.loss(one)[0] for one in (others, rows)]
    torch.testing.assert_close(*losses)
    agent.close()
