"""Native code and torch: which one computes, and that nobody else can tell."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.collect import NonFiniteError
from sharpwave.learners.batch import OnPolicyBatch
from tests.envs import resumable
from tests.learning import probes
from tests.unit.agents.small_runs import small_ppo

small_a2c = partial(sw.A2C, "CartPole-v1", n_envs=4, hidden=(8,), seed=3)
BOTH = pytest.mark.parametrize("make", [small_ppo, small_a2c], ids=["ppo", "a2c"])
IMAGES = spaces.Box(0, 255, (84, 84, 3), np.uint8)
BACKENDS = [("native", "torch"), ("torch", "native")]


class Seen(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


class TestChoice:
    @BOTH
    def test_small_networks_on_the_cpu_are_native(self, make: Any) -> None:
        algo = make()
        assert algo.backend == "native"
        assert algo.backend_reason == "native code knows networks, device and options"
        assert make(backend="native").backend == "native"

    @BOTH
    def test_torch_is_there_when_asked_for(self, make: Any) -> None:
        algo = make(backend="torch")
        assert (algo.backend, algo.backend_reason) == ("torch", "it was asked for")

    @BOTH
    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"recurrent": "lstm"}, "recurrent is 'lstm'"),
            ({"device": "meta"}, "device is 'meta'"),
            ({"use_gsde": True}, "use_gsde is on"),
            ({"squash_actions": True}, "squash_actions is on"),
            ({"compile": True}, "compile is on"),
            ({"policy": torch.nn.Linear(4, 2)}, "policy is a network of its own"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_native_code_is_refused_with_the_reason(
        self, make: Any, options: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(ValueError, match=f"backend must be 'auto' or 'torch'.*{reason}"):
            make(backend="native", **options)

    @pytest.mark.long
    def test_torch_does_what_native_code_cannot(self) -> None:
        algo = small_ppo(recurrent="gru")
        assert (algo.backend, algo.backend_reason) == ("torch", "recurrent is 'gru'")
        algo = small_ppo(partial(Seen, IMAGES, spaces.Discrete(2)))
        assert algo.backend == "torch"
        assert "observations are images" in algo.backend_reason

    def test_a_changed_loss_is_what_computes(self) -> None:
        """The reason named the changed method, and another gradient than its own was taken."""
        calls = []

        class Mine(PPOLearner):
            def loss(self, batch: OnPolicyBatch) -> Any:
                calls.append(len(batch.returns))
                return super().loss(batch)

        class Named(sw.PPO):
            def save(self, path: Any) -> None:
                super().save(path)

        options: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "n_epochs": 2, "batch_size": 64}
        mine = sw.PPO("CartPole-v1", learner=Mine, **options)
        assert mine.backend_reason == "Mine changes loss"
        mine.train(256)
        assert calls == [64] * 2 * 2 * 2  # updates, epochs, minibatches
        assert Named("CartPole-v1").backend == "native"

    @pytest.mark.parametrize("kind", [sw.PPO, sw.A2C, sw.IMPALA], ids=lambda kind: kind.name)
    def test_a_changed_loss_logs_what_it_names(self, kind: Any) -> None:
        class Same(kind.Learner):  # type: ignore[misc]
            def loss(self, batch: OnPolicyBatch) -> Any:
                return super().loss(batch)

        class Mine(Same):
            def loss(self, batch: OnPolicyBatch) -> Any:
                loss, metrics = super().loss(batch)
                return loss, {"rows": batch.returns.new_tensor(len(batch.returns)), **metrics}

        options: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "seed": 0}
        if kind is sw.IMPALA:
            options["deterministic"] = True
        plain, mine = (kind("CartPole-v1", learner=one, **options) for one in (Same, Mine))
        expected, found = plain.train(256), mine.train(256)
        assert found.pop("rows") > 0
        same = ("policy_loss", "value_loss", "entropy", "loss", "grad_norm")
        assert {name: found[name] for name in same} == {name: expected[name] for name in same}
        for agent in (plain, mine):
            agent.close()

    def test_algorithms_without_a_native_update_say_so(self) -> None:
        obs, actions, ends = np.zeros((20, 3)), np.zeros((20, 1)), np.zeros(20)
        data = (obs, obs, actions, ends, ends)
        algo = sw.BC(data)
        assert (algo.backend, algo.backend_reason) == ("torch", "bc has no native update")
        with pytest.raises(ValueError, match=r"backend.*'native': bc has no native update"):
            sw.BC(data, backend="native")

    def test_nor_do_those_that_change_the_loss_of_one_that_has(self) -> None:
        algo = sw.TQC("Pendulum-v1", learning_starts=10)
        assert (algo.backend, algo.backend_reason) == ("torch", "tqc has no native update")
        with pytest.raises(ValueError, match=r"backend.*'native': c51 has no native update"):
            sw.C51("CartPole-v1", backend="native")

    @pytest.mark.long
    def test_a_run_folder_says_which_and_why(self, tmp_path: Path) -> None:
        small_ppo().train(128, run_dir=tmp_path)
        facts = json.loads((tmp_path / "environment.json").read_text())
        assert facts["backend"] == "native"
        assert facts["backend_reason"] == "native code knows networks, device and options"
        assert "native" in (tmp_path / "report.html").read_text()


@BOTH
class TestMemory:
    def test_both_start_from_the_same_weights(self, make: Any) -> None:
        native, other = make(backend="native"), make(backend="torch")
        assert np.array_equal(native.block, other.block)
        assert native.policy.state_dict().keys() == other.policy.state_dict().keys()

    def test_the_module_sees_what_native_code_learns(self, make: Any) -> None:
        algo = make(backend="native")
        before = [parameter.clone() for parameter in algo.policy.parameters()]
        algo.train(256)
        after = list(algo.policy.parameters())
        assert not any(torch.equal(one, two) for one, two in zip(before, after, strict=True))
        flat = torch.cat([parameter.detach().flatten() for parameter in after])
        np.testing.assert_array_equal(flat, algo.block)

    def test_native_code_sees_what_the_module_is_given(self, make: Any) -> None:
        algo = make(backend="native")
        with torch.no_grad():
            algo.policy.get_parameter("actor.2.bias").copy_(torch.tensor([-50.0, 50.0]))
        assert algo.predict(np.zeros((20, 4)), deterministic=False).tolist() == [1] * 20

    @pytest.mark.long(but=["CartPole-v1-ppo"])
    @pytest.mark.parametrize(
        "env",
        [
            "CartPole-v1",
            probes.ContinuousIdentity,
            probes.MultiIdentity,
            probes.BinaryIdentity,
            probes.OnlyAllowed,
        ],
    )
    def test_a_rollout_holds_what_the_policy_thought_when_it_acted(
        self, make: Any, env: Any
    ) -> None:
        cls: Any = make.func if isinstance(make, partial) else sw.PPO
        algo = cls(env, n_envs=4, n_steps=32, backend="native", learning_rate=1e-2)
        algo.train(256)
        rollout = algo.collector.collect(0.9, 0.9)
        assert rollout is not None
        columns = algo.collector.columns(rollout, sequences=False)
        batch = OnPolicyBatch.of(columns, torch.as_tensor)
        evaluated = algo.policy.evaluate(batch.obs, batch.actions, masks=batch.masks)
        torch.testing.assert_close(evaluated.log_probs, batch.log_probs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(evaluated.values, batch.values, rtol=1e-5, atol=1e-6)


@BOTH
def test_an_update_is_a_function_of_the_batch_be_it_of_arrays_or_tensors(make: Any) -> None:
    collector = make(backend="native").collector
    columns = collector.columns(collector.collect(0.9, 0.9), sequences=False)
    results = []
    for kind in (np.asarray, torch.as_tensor):
        batch = copy.deepcopy(OnPolicyBatch.of(columns, kind))
        before = copy.deepcopy(batch)
        algo = make(backend="native")
        algo.close()
        algo.loop = None  # an update needs none
        algo.learner.follow(1.0)
        metrics = algo.update(batch)
        for name, column in vars(before).items():
            np.testing.assert_array_equal(getattr(batch, name), column)
        assert all(type(value) is float for value in metrics.values())
        results.append((algo.block.tobytes(), metrics))
    assert results[0] == results[1]


@BOTH
class TestCheckpoints:
    @pytest.mark.long(but=["native-torch-ppo"])
    @pytest.mark.parametrize(("first", "second"), BACKENDS)
    def test_one_loads_what_the_other_saved(
        self, make: Any, first: str, second: str, tmp_path: Path
    ) -> None:
        algo = make(backend=first)
        algo.train(300)
        algo.save(tmp_path / "a")
        loaded = type(algo).from_checkpoint(tmp_path / "a", backend=second)
        assert loaded.backend == second
        obs = np.random.default_rng(0).normal(size=(50, 4))
        np.testing.assert_array_equal(loaded.predict(obs), algo.predict(obs))
        assert np.array_equal(loaded.block, algo.block)
        mine, theirs = (one.optimizers["policy"].arrays() for one in (loaded, algo))
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(np.asarray(array), np.asarray(theirs[name]))
        loaded.train(300)
        assert loaded.timesteps > algo.timesteps

    def test_another_network_is_refused(self, make: Any, tmp_path: Path) -> None:
        make(backend="native").save(tmp_path / "a")
        with pytest.raises(ValueError, match="network must be that of the checkpoint"):
            type(make()).from_checkpoint(tmp_path / "a", hidden=(9,))


@BOTH
def test_the_same_seed_gives_the_same_run_whatever_the_threads(make: Any) -> None:
    runs = []
    for threads in (1, 2, 4):
        cls: Any = make.func if isinstance(make, partial) else sw.PPO
        algo = cls(resumable, n_envs=40, n_steps=8, seed=1, threads=threads, backend="native")
        algo.train(1000)
        assert algo.backend == "native"
        runs.append(algo.block.tobytes())
    assert runs[0] == runs[1] == runs[2]


@BOTH
def test_weights_that_are_not_numbers_stop_the_run(make: Any) -> None:
    algo = make(backend="native")
    algo.train(128)
    algo.block[5] = np.nan
    with pytest.raises(NonFiniteError, match=r"finite"):
        algo.train(128)


@pytest.mark.long
def test_a_native_run_does_not_import_torch(tmp_path: Path) -> None:
    program = """
import sys
import sharpwave as sw

for cls, folder in ((sw.PPO, sys.argv[1] + "/run"), (sw.A2C, None)):
    algo = cls("CartPole-v1", n_envs=2, n_steps=16, normalize_obs=True)
    algo.train(64, run_dir=folder)
    algo.predict([0.0, 0.0, 0.0, 0.0])
    algo.evaluate(2)
    algo.save(sys.argv[1] + "/checkpoint")
    loaded = cls.from_checkpoint(sys.argv[1] + "/checkpoint")
    loaded.train(64)
    assert "torch" not in sys.modules
print(loaded.policy)
assert "torch" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "ActorCritic" in done.stdout
