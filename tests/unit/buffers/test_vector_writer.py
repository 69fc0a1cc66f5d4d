"""Steps of real vector environments, in every autoreset mode, against single environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from sharpwave import NStep, PrioritizedReplayBuffer, ReplayBuffer, VectorWriter
from tests.reference.nests import Nest, assert_same, transform
from tests.reference.replay import in_batch

LIMIT = 12
N_ENVS = 3
STEPS = 60


class Nested(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole's observation in a dict, with a tuple in it."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = gym.spaces.Dict(
            {"cart": box, "pole": gym.spaces.Tuple((box, gym.spaces.Discrete(2)))}
        )

    def observation(self, observation: Any) -> Any:
        cart, pole = observation[:2], observation[2:]
        return {"cart": cart, "pole": (pole, np.int64(pole[0] > 0))}


def make_cart_pole() -> gym.Env[Any, Any]:
    return TimeLimit(gym.make("CartPole-v1").unwrapped, LIMIT)


def make_nested() -> gym.Env[Any, Any]:
    return Nested(make_cart_pole())


MAKERS = {"box": make_cart_pole, "nested": make_nested}


def actions_of(step: int) -> Any:
    """Mostly one way, so that poles fall before the limit, and both ends occur."""
    wobble = np.random.default_rng(step).integers(0, 2, N_ENVS)
    return np.array([1, wobble[1], step % 2])


def recorded(make: Any, mode: str) -> list[list[dict[str, Nest]]]:
    """The steps that single environments take under the same seeds and actions."""
    steps: list[list[dict[str, Nest]]] = []
    for env_number in range(N_ENVS):
        env = make()
        obs, _ = env.reset(seed=10 + env_number)
        taken: list[dict[str, Nest]] = []
        waiting = False
        for number in range(STEPS):
            if waiting:  # this step of the vector environment is a reset
                obs, _ = env.reset()
                waiting = False
                continue
            action = actions_of(number)[env_number]
            next_obs, reward, terminated, truncated, _ = env.step(action)
            taken.append(
                {
                    "obs": obs,
                    "action": np.int64(action),
                    "reward": np.float32(reward),
                    "terminated": np.bool_(terminated),
                    "truncated": np.bool_(truncated),
                    "next_obs": next_obs,
                }
            )
            obs = next_obs
            if terminated or truncated:
                if mode == "next_step":
                    waiting = True
                else:
                    obs, _ = env.reset()
        env.close()
        steps.append(taken)
    return steps


def played(env: Any, buffer: ReplayBuffer, writer: VectorWriter) -> None:
    """Plays the vector environment into the buffer."""
    obs, _ = env.reset(seed=10)
    obs = transform(np.array, obs)
    for number in range(STEPS):
        actions = actions_of(number)
        next_obs, rewards, terminated, truncated, infos = env.step(actions)
        next_obs = transform(np.array, next_obs)
        writer.push(obs, actions, rewards, terminated, truncated, next_obs, infos)
        obs = next_obs
        ended = terminated | truncated
        if writer.mode == "disabled" and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
            obs = transform(np.array, obs)
    env.close()


def check(buffer: ReplayBuffer, expected: list[list[dict[str, Nest]]]) -> None:
    ids = buffer.indices()
    batch = buffer.gather(ids)
    kinds = set()
    for env_number, steps in enumerate(expected):
        rows = np.flatnonzero(ids % N_ENVS == env_number)
        assert len(rows) == len(steps)
        for row, step in zip(rows, steps, strict=True):
            got = transform(lambda array, row=row: array[row], batch)
            assert_same(got, transform(np.asarray, in_batch(step)))
            kinds.add((bool(step["terminated"]), bool(step["truncated"])))
    assert {(True, False), (False, True), (False, False)} <= kinds


@pytest.mark.long(but=["next_step-box"])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_stored_steps_are_those_of_single_environments(mode: AutoresetMode, kind: str) -> None:
    make = MAKERS[kind]
    env = SyncVectorEnv([make] * N_ENVS, autoreset_mode=mode)
    buffer = ReplayBuffer.for_env(env, 1000)
    writer = VectorWriter(buffer, env)
    assert writer.mode == mode.name.lower()
    played(env, buffer, writer)
    check(buffer, recorded(make, writer.mode))


@pytest.mark.long
def test_asynchronous_environments_are_stored_alike() -> None:
    env = AsyncVectorEnv([make_nested] * N_ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    buffer = PrioritizedReplayBuffer.for_env(env, 1000, beta=1.0)
    played(env, buffer, VectorWriter(buffer, env))
    check(buffer, recorded(make_nested, "same_step"))


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
def test_n_step_targets_end_with_their_episode(mode: AutoresetMode) -> None:
    env = SyncVectorEnv([make_cart_pole] * N_ENVS, autoreset_mode=mode)
    buffer = ReplayBuffer.for_env(env, 1000)
    writer = VectorWriter(buffer, env)
    played(env, buffer, writer)
    steps = recorded(make_cart_pole, writer.mode)
    ids = buffer.indices()
    batch = buffer.gather(ids, view=NStep(4, 0.5))
    for env_number, episode in enumerate(steps):
        for t, row in enumerate(np.flatnonzero(ids % N_ENVS == env_number)):
            m = 1
            while m < 4 and t + m < len(episode):
                last = episode[t + m - 1]
                if last["terminated"] or last["truncated"]:
                    break
                m += 1
            last = episode[t + m - 1]
            assert batch["rewards"][row] == sum(0.5**i for i in range(m))
            assert batch["discounts"][row] == (0.0 if last["terminated"] else 0.5**m)
            assert_same(batch["next_obs"][row], last["next_obs"])


def test_resets_of_the_caller_store_no_step_less() -> None:
    env = SyncVectorEnv([make_cart_pole] * N_ENVS, autoreset_mode=AutoresetMode.NEXT_STEP)
    buffer = ReplayBuffer.for_env(env, 1000)
    writer = VectorWriter(buffer, env)
    pushed = 0
    for _ in range(4):
        obs, _ = env.reset(seed=1)
        writer.reset()
        for number in range(LIMIT):  # the last step truncates every environment
            actions = np.array([number % 2] * N_ENVS)
            next_obs, rewards, terminated, truncated, infos = env.step(actions)
            writer.push(obs, actions, rewards, terminated, truncated, next_obs, infos)
            obs = next_obs
            pushed += N_ENVS
    assert len(buffer) == pushed
    env.close()


def test_extra_columns_are_written_for_the_rows_that_are_stored() -> None:
    fields = {"obs": "float32", "action": "int64", "reward": "float32", "terminated": "bool",
              "truncated": "bool", "value": "float32"}  # fmt: skip
    buffer = ReplayBuffer(20, fields=fields, n_envs=2)
    writer = VectorWriter(buffer, mode="next_step")
    no = np.zeros(2, np.bool_)
    first_ends = np.array([True, False])
    writer.push([0, 10], [0, 0], [1, 1], first_ends, no, [1, 11], value=[5, 6])
    writer.push([1, 11], [0, 0], [0, 1], no, no, [20, 12], value=[7, 8])
    writer.push([20, 12], [0, 0], [1, 1], no, no, [21, 13], value=[9, 10])
    batch = buffer.gather(buffer.indices())
    assert batch["obs"].tolist() == [0, 20, 10, 11, 12]
    assert batch["value"].tolist() == [5, 9, 6, 8, 10]


def test_the_writer_refuses_what_it_cannot_know() -> None:
    env = SyncVectorEnv([make_cart_pole] * 2)
    with pytest.raises(ValueError, match="n_envs"):
        VectorWriter(ReplayBuffer(10, 4, 1), env)
    buffer = ReplayBuffer.for_env(env, 100)
    with pytest.raises(TypeError, match="env or mode"):
        VectorWriter(buffer)
    with pytest.raises(ValueError, match="mode must be"):
        VectorWriter(buffer, mode="later")
    writer = VectorWriter(buffer, mode="same_step")
    obs = np.zeros((2, 4), np.float32)
    ended = np.array([True, False])
    with pytest.raises(ValueError, match="final_obs"):
        writer.push(obs, [0, 0], [0.0, 0.0], ended, ended, obs, {})
    with pytest.raises(ValueError, match="terminated"):
        writer.push(obs, [0, 0], [0.0, 0.0], ended[:1], ended[:1], obs, {})
    assert len(buffer) == 0
    env.close()


def test_a_refused_push_does_not_move_the_writer_on() -> None:
    buffer = ReplayBuffer(20, fields={"obs": "float32", "reward": "float32",
                                      "terminated": "bool", "truncated": "bool",
                                      "action": "int64"}, n_envs=2)  # fmt: skip
    writer = VectorWriter(buffer, mode="next_step")
    ended, no = np.array([True, True]), np.zeros(2, np.bool_)
    with pytest.raises(ValueError, match="reward"):
        writer.push([0, 1], [0, 0], [np.nan, 0], ended, no, [1, 2])
    writer.push([0, 1], [0, 0], [1, 1], no, no, [1, 2])
    assert len(buffer) == 2
