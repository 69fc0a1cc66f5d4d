"""Rollouts of native threads: what they hold, whose weights they have, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

import sharpwave as sw
from sharpwave import nn
from sharpwave.collect import NativeCollector, NonFiniteError
from sharpwave.envs.native import SPECS, NativeVectorEnv
from sharpwave.types import Array

FLAGS = ("dones", "terminated", "truncated", "starts")
FLOATS = ("rewards", "log_probs", "values", "next_values", "advantages", "returns")


def make(env_id: str = "CartPole-v1", n_envs: int = 4, **options: Any) -> NativeCollector:
    return NativeCollector(env_id, n_envs, **{"n_steps": 16, "hidden": 8, "seed": 3, **options})


def torch_policy(collector: NativeCollector, **options: Any) -> nn.ActorCritic:
    """A torch module with the collector's weights, which are its `state_dict` one by one."""
    env = collector.env
    spaces = (env.single_observation_space, env.single_action_space)
    policy = nn.ActorCritic(*spaces, generator=np.random.default_rng(0), **options)
    weights = torch.from_numpy(collector.get_weights())
    state = policy.state_dict()
    parts = weights.split([tensor.numel() for tensor in state.values()])
    policy.load_state_dict(
        {name: part.view_as(state[name]) for name, part in zip(state, parts, strict=True)}
    )
    return policy


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) for name in first
    )


@pytest.mark.parametrize("env_id", SPECS)
def test_arrays_are_time_major(env_id: str) -> None:
    with make(env_id, 3) as collector:
        batch = collector.recv()
    space = collector.env.single_observation_space
    assert batch["observations"].shape == (16, 3, *(space.shape or ()))
    for name in FLAGS:
        assert batch[name].dtype == np.bool_
        assert batch[name].shape == (16, 3)
    for name in FLOATS:
        assert batch[name].dtype == np.float32
        assert batch[name].shape == (16, 3)
        assert np.isfinite(batch[name]).all()
    discrete = batch["actions"].dtype == np.int64
    assert batch["actions"].shape == ((16, 3) if discrete else (16, 3, 1))
    assert all(array.flags.writeable for name, array in batch.items() if name != "version")


@pytest.mark.parametrize("env_id", SPECS)
@pytest.mark.parametrize(
    ("hidden", "activation"), [(64, "tanh"), ((32, 16, 8), "relu"), ((), "tanh")]
)
def test_log_probs_and_values_are_those_of_the_torch_policy(
    env_id: str, hidden: Any, activation: str
) -> None:
    with make(env_id, 5, hidden=hidden, activation=activation) as collector:
        generator = np.random.default_rng(1)
        size = len(collector.get_weights())
        collector.stop()
    weights = generator.normal(0, 0.3, size).astype(np.float32)
    with make(env_id, 5, hidden=hidden, activation=activation, weights=weights) as collector:
        batch = collector.recv()
        widths = (hidden, hidden) if isinstance(hidden, int) else hidden
        policy = torch_policy(collector, hidden=widths, activation=activation)
    obs = torch.from_numpy(batch["observations"]).flatten(0, 1)
    actions = torch.from_numpy(batch["actions"]).flatten(0, 1)
    with torch.no_grad():
        log_probs, _, values = policy.evaluate(obs, actions)
    np.testing.assert_allclose(batch["log_probs"].reshape(-1), log_probs, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch["values"].reshape(-1), values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("env_id", SPECS)
def test_steps_are_those_of_the_environments(env_id: str) -> None:
    env = NativeVectorEnv(env_id, 3, max_episode_steps=7)
    twin = NativeVectorEnv(env_id, 3, max_episode_steps=7)
    env.reset(seed=5)
    obs, _ = twin.reset(seed=5)
    space = twin.single_action_space
    starts = np.ones(3, np.bool_)
    with make(env, 3, capacity=0) as collector:  # type: ignore[arg-type]
        for _ in range(3):  # episodes go on from one rollout to the next
            batch = collector.recv()
            last: list[Any] = []
            for t in range(16):
                np.testing.assert_array_equal(batch["observations"][t], obs)
                np.testing.assert_array_equal(batch["starts"][t], starts)
                actions = batch["actions"][t]
                if actions.dtype == np.float32:
                    actions = np.clip(actions, space.low, space.high)  # type: ignore[attr-defined]
                obs, rewards, terminated, truncated, infos = twin.step(actions)
                np.testing.assert_array_equal(batch["rewards"][t], rewards.astype(np.float32))
                np.testing.assert_array_equal(batch["terminated"][t], terminated)
                np.testing.assert_array_equal(batch["truncated"][t], truncated)
                starts = terminated | truncated
                np.testing.assert_array_equal(batch["dones"][t], starts)
                last += [infos["final_obs"][i] for i in np.flatnonzero(starts)]
            lengths = batch["episode_lengths"]
            assert len(lengths) == batch["dones"].sum()
            assert (lengths <= 7).all()
            np.testing.assert_array_equal(
                batch["final_obs"], np.array(last).reshape(-1, obs.shape[1])
            )
            np.testing.assert_array_equal(batch["last_obs"], obs)


def test_advantages_are_those_of_gae() -> None:
    env = NativeVectorEnv("CartPole-v1", 16, max_episode_steps=20)
    env.reset(seed=0)
    with make(env, 16, n_steps=64, gamma=0.9, gae_lambda=0.7) as collector:  # type: ignore[arg-type]
        batch = collector.recv()
    assert batch["truncated"].any()
    assert batch["terminated"].any()
    advantages, returns = sw.gae(
        batch["rewards"],
        batch["values"],
        next_values=batch["next_values"],
        terminated=batch["terminated"],
        truncated=batch["truncated"],
        gamma=0.9,
        lam=0.7,
    )
    np.testing.assert_allclose(batch["advantages"], advantages, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch["returns"], returns, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_without_values_a_rollout_is_the_same_otherwise(env_id: str) -> None:
    options: dict[str, Any] = {"n_steps": 40, "hidden": 8, "seed": 3, "capacity": 0}
    valued, bare = (NativeCollector(env_id, 5, values=x, **options) for x in (True, False))
    for _ in range(3):
        expected, found = valued.recv(), bare.recv()
        assert expected.keys() - found.keys() == {"values", "next_values", "advantages", "returns"}
        for name, column in found.items():
            np.testing.assert_array_equal(column, expected[name], err_msg=name)


def test_values_that_nobody_asked_for_are_nan() -> None:
    """A learner that takes the rollouts of an actor for its own learns nothing from them."""
    agent: Any = sw.IMPALA("CartPole-v1", n_actors=1, n_envs=2, n_steps=4, hidden=(4,), seed=1)
    agent.loop.fleet.start(agent.learner.weights(), 0)
    rollout = agent.loop.fleet.receive(60.0).rollout
    assert np.isfinite(rollout.log_probs).all()
    for name in ("values", "next_values", "advantages", "returns"):
        assert np.isnan(getattr(rollout, name)).all()
    agent.close()


def test_actions_follow_the_policy() -> None:
    with make(n_envs=512, n_steps=64, capacity=1) as collector:
        batch = collector.recv()
    taken = np.exp(batch["log_probs"])  # of the actions that were drawn
    first = np.where(batch["actions"] == 0, taken, 1 - taken)
    expected, n = first.sum(), first.size
    deviation = np.sqrt((first * (1 - first)).sum())
    assert abs((batch["actions"] == 0).sum() - expected) < 4 * deviation
    assert n == 512 * 64


def test_continuous_actions_follow_the_policy() -> None:
    with make("Pendulum-v1", 512, n_steps=64, capacity=1) as collector:
        batch = collector.recv()
    squares = -2 * (batch["log_probs"] + 0.5 * np.log(2 * np.pi))  # of standard normal numbers
    n = squares.size
    assert abs(squares.mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((squares**2).mean() - 3) < 4 * np.sqrt(96 / n)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("threads", [2, 4])
def test_threads_do_not_matter(env_id: str, threads: int) -> None:
    with make(env_id, 37) as one, make(env_id, 37, threads=threads) as many:
        for _ in range(3):
            assert same(one.recv(), many.recv())


def test_a_seed_decides_everything() -> None:
    with make() as first, make() as second, make(seed=4) as other:
        np.testing.assert_array_equal(first.get_weights(), second.get_weights())
        for _ in range(3):
            assert same(first.recv(), second.recv())
        assert not np.array_equal(first.get_weights(), other.get_weights())


def test_rollouts_of_a_collector_differ() -> None:
    with make() as collector:
        assert not same(collector.recv(), collector.recv())


def test_weights_have_versions() -> None:
    with make(capacity=0) as collector:
        assert collector.version == collector.recv()["version"] == 0
        weights = collector.get_weights() + 1
        assert collector.sync_weights(torch.from_numpy(weights)) == 1
        np.testing.assert_array_equal(collector.get_weights(), weights)
        assert collector.recv()["version"] == collector.version == 1


def test_a_request_has_the_weights_of_its_moment() -> None:
    with make(capacity=0) as collector, make(capacity=0) as twin:
        collector.request()
        collector.sync_weights(collector.get_weights() + 1)
        assert same(collector.recv(), twin.recv())
        assert collector.recv()["version"] == 1
    with make(capacity=1) as free, pytest.raises(RuntimeError, match="capacity is 0"):
        free.request()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(bad: float) -> None:
    with make() as collector:
        weights = collector.get_weights()
        weights[7] = bad
        with pytest.raises(ValueError, match=r"weights must be finite, got .* at 7"):
            collector.sync_weights(weights)
        assert collector.version == 0


def test_weights_of_another_size_are_refused() -> None:
    with make() as collector, pytest.raises(ValueError, match=r"weights must have shape \(\d+,\)"):
        collector.sync_weights(np.zeros(3, np.float32))


@pytest.mark.parametrize("capacity", [0, 2])
def test_weights_that_make_no_numbers_stop_the_collection(capacity: int) -> None:
    with make() as collector:
        weights: Array = np.full_like(collector.get_weights(), 3e38)
    collector = make("CartPole-v1", weights=weights, capacity=capacity)
    for _ in range(2):
        with pytest.raises(NonFiniteError, match="weights must give finite"):
            collector.recv()
    with pytest.raises(NonFiniteError):
        collector.try_recv()
    collector.stop()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "HalfCheetah-v4"}, "env_id must be one of"),
        ({"obs_dim": 3}, "obs_dim must be 4"),
        ({"n_actions": 3}, "n_actions must be 2"),
        ({"n_envs": 0}, "num_envs must be at least 1"),
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"hidden": 0}, "hidden must be positive"),
        ({"activation": "mish"}, "activation must be"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1"),
        ({"capacity": -1}, "capacity must be at least 0"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


def wait_until_full(collector: NativeCollector, capacity: int) -> None:
    while len(collector) < capacity:
        time.sleep(0.001)


class TestStop:
    def test_a_full_queue(self) -> None:
        collector = make()
        wait_until_full(collector, 2)
        collector.stop()
        collector.stop()
        assert collector.try_recv() is not None
        assert collector.recv()["version"] == 0
        assert collector.try_recv() is None
        with pytest.raises(RuntimeError, match="stopped"):
            collector.recv()

    def test_in_the_midst_of_a_rollout(self) -> None:
        collector = make(n_steps=1_000_000)
        assert collector.try_recv() is None
        collector.stop()
        with pytest.raises(RuntimeError, match="stopped"):
            collector.recv()

    @pytest.mark.long
    def test_while_someone_waits(self) -> None:
        collector = make(n_steps=1_000_000)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                collector.recv()
            except RuntimeError as error:
                failures.append(error)

        waits = threading.Thread(target=wait)
        waits.start()
        collector.stop()
        waits.join(60)
        assert len(failures) == 1

    @pytest.mark.long
    def test_many_times(self) -> None:
        for i in range(100):
            collector = make(n_envs=2, n_steps=4, capacity=1 + i % 2)
            if i % 3 == 0:
                collector.recv()
            if i % 2 == 0:
                collector.stop()

    @pytest.mark.long
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_process_has_no_thread(self) -> None:
        program = (
            "import os, sys\n"
            "from sharpwave.collect import NativeCollector\n"
            "collector = NativeCollector('CartPole-v1', 4, n_steps=1_000_000)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    collector.stop()\n"
            "    try:\n"
            "        collector.recv()\n"
            "    except RuntimeError as error:\n"
            "        sys.exit(7 if 'process that made it' in str(error) else 1)\n"
            "    sys.exit(1)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        assert run(program) == (7, "")

    @pytest.mark.long
    @pytest.mark.parametrize(
        "end",
        ["", "import os; os.kill(os.getpid(), 2)", "raise SystemExit(3)", "del collector"],
    )
    def test_the_end_of_the_process(self, end: str) -> None:
        program = (
            "from sharpwave.collect import NativeCollector\n"
            f"collector = NativeCollector('CartPole-v1', 4)\ncollector.recv()\n{end}\n"
        )
        code, said = run(program)
        assert code in (0, 3, -2)
        assert "KeyboardInterrupt" in said or not said

    @pytest.mark.long
    def test_the_end_of_the_process_while_a_thread_waits(self) -> None:
        program = (
            "import threading\n"
            "from sharpwave.collect import NativeCollector\n"
            "collector = NativeCollector('CartPole-v1', 4, n_steps=1_000_000)\n"
            "threading.Thread(target=collector.recv, daemon=True).start()\n"
        )
        assert run(program)[0] == 0

    @pytest.mark.long
    def test_ctrl_c_ends_a_wait(self) -> None:
        program = (
            "import os, threading\n"
            "from sharpwave.collect import NativeCollector\n"
            "collector = NativeCollector('CartPole-v1', 4, n_steps=1_000_000)\n"
            "threading.Timer(0.2, os.kill, (os.getpid(), 2)).start()\n"
            "try:\n    collector.recv()\nexcept KeyboardInterrupt:\n    raise SystemExit(5)\n"
        )
        assert run(program)[0] == 5


def run(program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stderr
