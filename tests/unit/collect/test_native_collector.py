"""Rollouts in the background: the same for the same seed, and a thread that always ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from sharpwave.collect import NativeCollector
from sharpwave.compat.rlox import CandleCollector
from sharpwave.nn import DiscretePolicy


def made(**options: Any) -> NativeCollector:
    arguments: dict[str, Any] = {
        "env_id": "CartPole-v1",
        "n_envs": 3,
        "obs_dim": 4,
        "n_actions": 2,
        "n_steps": 5,
        "hidden": 8,
        "seed": 1,
    }
    return NativeCollector(**{**arguments, **options})


def threads() -> int:
    return sum(thread.name == "collect" for thread in threading.enumerate())


def wait_for(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("waited for too long")


class TestRollouts:
    def test_the_same_seed_gives_the_same_rollouts(self) -> None:
        with made() as one, made() as two, made(seed=2) as other:
            for _ in range(4):
                ours, theirs = one.recv(), two.recv()
                np.testing.assert_equal(ours, theirs)
            assert not np.array_equal(other.recv()["obs"], ours["obs"])

    def test_rollouts_go_on_where_the_last_ended(self) -> None:
        with made(n_envs=1) as collector, made(n_envs=1, n_steps=10) as long:
            halves = [collector.recv() for _ in range(2)]
            whole = long.recv()
            for name in ("obs", "actions", "rewards", "terminated"):
                both = np.concatenate([half[name] for half in halves])
                np.testing.assert_array_equal(both, whole[name])

    @pytest.mark.parametrize(
        ("env_id", "sizes"),
        [("Pendulum-v1", (3, 1)), ("Acrobot-v1", (6, 3)), ("MountainCar-v0", (2, 3))],
    )
    def test_other_environments(self, env_id: str, sizes: tuple[int, int]) -> None:
        obs_dim, n_actions = sizes
        with made(env_id=env_id, obs_dim=obs_dim, n_actions=n_actions, activation="relu") as one:
            assert one.recv()["obs"].shape == (5, 3, obs_dim)

    def test_the_policy_is_that_of_torch(self) -> None:
        torch = pytest.importorskip("torch")
        policy = DiscretePolicy(4, 2, hidden=8)
        flat = torch.cat([one.detach().reshape(-1) for one in policy.parameters()]).numpy()
        with made(capacity=1) as collector:
            collector.sync_weights(flat)
            rollout = next(r for r in iter(collector.recv, None) if r["version"] == 1)
        obs = torch.from_numpy(rollout["obs"]).reshape(-1, 4)
        actions = torch.from_numpy(rollout["actions"]).reshape(-1)
        with torch.no_grad():
            log_probs, _ = policy.get_logprob_and_entropy(obs, actions)
            values = policy.get_value(obs)
        np.testing.assert_allclose(rollout["log_probs"].ravel(), log_probs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rollout["values"].ravel(), values, rtol=1e-5, atol=1e-6)


class TestWeights:
    def test_come_back_as_they_were_given(self) -> None:
        with made() as collector:
            weights = collector.get_weights() + 1
            collector.sync_weights(weights)
            np.testing.assert_array_equal(collector.get_weights(), weights)

    def test_versions_count(self) -> None:
        with made(capacity=1) as collector:
            versions = []
            for _ in range(6):
                versions.append(collector.recv()["version"])
                collector.sync_weights(collector.get_weights())
            assert versions == sorted(versions)
            assert versions[0] == 0 < versions[-1]

    @pytest.mark.parametrize("bad", [np.zeros(3), np.nan, np.inf, "weights"])
    def test_bad_ones_are_named_and_change_nothing(self, bad: Any) -> None:
        with made() as collector:
            before = collector.get_weights()
            given = bad if isinstance(bad, str) or np.ndim(bad) else np.full_like(before, bad)
            with pytest.raises(ValueError, match=r"weights must|could not convert"):
                collector.sync_weights(given)
            np.testing.assert_array_equal(collector.get_weights(), before)
            collector.recv()


class TestEnd:
    @pytest.mark.parametrize("state", ["new", "full", "taken", "empty"])
    def test_stop_ends_the_thread_in_every_state(self, state: str) -> None:
        before = threads()
        collector = made(capacity=2)
        if state == "full":
            wait_for(lambda: len(collector) == 2)
        if state in ("taken", "empty"):
            collector.recv()
        while state == "empty" and collector.try_recv() is not None:
            pass
        collector.stop()
        collector.stop()
        assert threads() == before
        with pytest.raises(RuntimeError, match="was stopped"):
            collector.recv()

    def test_whoever_waits_is_woken(self) -> None:
        collector = made(n_envs=2000, n_steps=400, capacity=1)
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                while True:
                    collector.recv()
            except RuntimeError as error:
                failures.append(error)

        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for thread in waiting:
            thread.start()
        collector.stop()
        for thread in waiting:
            thread.join(20)
        assert len(failures) == 3

    def test_a_forgotten_collector_ends_its_thread(self) -> None:
        before = threads()
        collector = made()
        collector.recv()
        del collector
        gc.collect()
        wait_for(lambda: threads() == before)

    def test_a_failure_of_the_thread_is_raised(self) -> None:
        collector = made(capacity=1)
        collector._work._rollouts.env.close()
        wait_for(lambda: collector._work._error is not None or collector.try_recv() is None)
        while len(collector):
            collector.recv()
        with pytest.raises(RuntimeError, match=r"collector failed.*closed"):
            collector.recv()
        collector.stop()

    def test_many_collectors_come_and_go(self) -> None:
        before = threads()
        for number in range(30):
            with made(seed=number) as collector:
                if number % 2:
                    collector.recv()
        assert threads() == before

    @pytest.mark.parametrize("end", ["", "collector.recv()", "raise SystemExit(0)", "1 / 0"])
    def test_a_program_ends_with_a_collector_at_work(self, end: str) -> None:
        program = (
            "from sharpwave.collect import NativeCollector\n"
            "collector = NativeCollector('CartPole-v1', 64, 4, 2, 256)\n" + end
        )
        done = subprocess.run(
            [sys.executable, "-c", program], timeout=60, capture_output=True, env=os.environ
        )
        assert done.returncode == (1 if end == "1 / 0" else 0), done.stderr


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"env_id": "Taxi-v3"}, "env_id must be one of"),
        ({"obs_dim": 3}, r"\(obs_dim, n_actions\) must be \(4, 2\)"),
        ({"n_actions": 1}, r"\(obs_dim, n_actions\) must be \(4, 2\)"),
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"n_envs": 0}, "num_envs"),
        ({"activation": "elu"}, "activation must be"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        made(**options)


def test_candle_collector_gives_flat_arrays() -> None:
    collector = CandleCollector(
        env_id="CartPole", n_envs=16, obs_dim=4, n_actions=2, n_steps=128, hidden=64, seed=42
    )
    batch = collector.recv()
    steps = 16 * 128
    assert batch["observations"].shape == (steps * 4,)
    assert batch["observations"].dtype == batch["actions"].dtype == np.float32
    for name in ("rewards", "dones", "log_probs", "values", "advantages", "returns"):
        assert batch[name].shape == (steps,)
        assert batch[name].dtype == np.float64
    assert [batch[name] for name in ("obs_dim", "act_dim", "n_steps", "n_envs")] == [4, 1, 128, 16]
    weights = collector.get_weights()
    assert weights.shape == (9155,)
    collector.sync_weights(weights)
    assert collector.try_recv() is None or len(collector) <= 2
    collector.stop()
