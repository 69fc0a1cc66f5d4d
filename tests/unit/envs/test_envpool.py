"""Pools as vector environments.

Envpool is not among the packages these tests need, so a stand-in with the interface of its pools
takes its place here: one environment's spaces, the numbers in a config, no seeds, and a reset in
the step after an episode's end.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from sharpwave.envs import Stepper, VecNormalize, make_vec_env
from sharpwave.envs.envpool import EnvPoolVectorEnv, is_envpool
from tests.envs import CountingEnv, numbered, vectorized
from tests.reference.nests import assert_equal


class Pool:
    """A stand-in for `envpool.make(..., env_type="gymnasium")`, around CountingEnv."""

    def __init__(self, n: int, *, lengths: Any = (3,), batch_size: int | None = None) -> None:
        self.config = {"num_envs": n, "batch_size": n if batch_size is None else batch_size}
        self.observation_space: Any = CountingEnv().observation_space
        self.action_space = CountingEnv().action_space
        self.inner = vectorized(numbered(n, lengths=lengths, ends="alternating"), "next_step")
        self.closed = False

    def reset(self, env_id: Any = None) -> Any:
        obs, _ = self.inner.reset()
        return obs, {"elapsed_step": np.zeros(len(obs), np.int32)}

    def step(self, action: Any, env_id: Any = None) -> Any:
        obs, rewards, terminated, truncated, _ = self.inner.step(action)
        infos = {"elapsed_step": obs[:, 2].astype(np.int32)}
        return obs, rewards.astype(np.float32), terminated, truncated, infos

    def send(self, action: Any, env_id: Any = None) -> None: ...

    def recv(self) -> None: ...

    def async_reset(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class VectorPool(Pool, gym.vector.VectorEnv[Any, Any, Any], gym.Env[Any, Any]):  # type: ignore[misc]
    """Newer pools call themselves both kinds of Gymnasium's environments."""

    @property
    def num_envs(self) -> int:  # type: ignore[override]
        return self.config["num_envs"]

    metadata: dict[str, Any] = {}  # noqa: RUF012


class OldPool(Pool):
    """Of the interface with one flag for the end, and the time limit in the infos."""

    def reset(self, env_id: Any = None) -> Any:
        return super().reset()[0]

    def step(self, action: Any, env_id: Any = None) -> Any:
        obs, rewards, terminated, truncated, infos = super().step(action)
        return obs, rewards, terminated | truncated, {**infos, "TimeLimit.truncated": truncated}


@pytest.mark.parametrize("kind", [Pool, VectorPool, OldPool])
@pytest.mark.parametrize("lengths", [(1,), (2, 4)])
def test_a_pool_steps_like_a_vector_environment(kind: Any, lengths: Any) -> None:
    env = make_vec_env(kind(3, lengths=lengths), 3)
    assert env.num_envs == 3
    assert env.observation_space.shape == (3, 3)
    assert isinstance(env.single_action_space, spaces.Discrete)
    stepper = Stepper(env)
    assert stepper.mode == "next_step"
    other = Stepper(vectorized(numbered(3, lengths=lengths, ends="alternating"), "next_step"))
    assert_equal(stepper.reset()[0], other.reset()[0])
    for t in range(12):
        got, expected = stepper.step(np.full(3, t % 2)), other.step(np.full(3, t % 2))
        assert_equal(got.obs, expected.obs)
        assert_equal(got.terminated, expected.terminated)
        assert_equal(got.truncated, expected.truncated)
        np.testing.assert_allclose(got.rewards, expected.rewards)
        assert (got.valid is None) == (expected.valid is None)
    env.close()
    assert env.pool.closed  # type: ignore[attr-defined]


def test_a_pool_can_be_normalized() -> None:
    stepper = Stepper(VecNormalize(make_vec_env(Pool(2))))
    stepper.reset()
    assert stepper.step(np.zeros(2, np.int64)).obs.shape == (2, 3)


def test_a_pool_that_steps_some_of_its_environments_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be 4 like num_envs, got 2"):
        make_vec_env(Pool(4, batch_size=2))
    assert EnvPoolVectorEnv(Pool(4, batch_size=0)).num_envs == 4


def test_a_pool_of_another_kind_is_refused() -> None:
    pool = Pool(2)
    pool.observation_space = "Box of another library"
    with pytest.raises(TypeError, match='env_type="gymnasium": its observation_space'):
        make_vec_env(pool)


def test_the_number_of_environments_is_checked() -> None:
    with pytest.raises(ValueError, match="n_envs must be 2 like the env's, got 3"):
        make_vec_env(Pool(2), 3)
    with pytest.raises(ValueError, match="options must be empty"):
        make_vec_env(Pool(2)).reset(options={"level": 1})


def test_other_objects_are_no_pools() -> None:
    for other in (CountingEnv(), Pool, None, vectorized(numbered(1), "same_step")):
        assert not is_envpool(other)
