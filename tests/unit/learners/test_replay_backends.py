"""Learners of replay in native code and torch: which one computes, and that nobody can tell."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.algorithms.sac import SACLearner
from sharpwave.collect import NonFiniteError
from sharpwave.learners.replay import ReplayBatch
from tests.envs import resumable, resumable_pendulum
from tests.learning import probes

SMALL: dict[str, Any] = {
    "hidden": (8, 8),
    "buffer_size": 2000,
    "batch_size": 16,
    "learning_starts": 20,
    "seed": 3,
}


def dataset() -> dict[str, Any]:
    """Steps of nothing in particular."""
    rng = np.random.default_rng(0)
    return {
        "obs": rng.normal(size=(200, 3)).astype("f"),
        "next_obs": rng.normal(size=(200, 3)).astype("f"),
        "actions": rng.uniform(-1, 1, (200, 1)).astype("f"),
        "rewards": rng.normal(size=200).astype("f"),
        "terminated": np.arange(200) % 20 == 19,
    }


def dqn(env: Any = "CartPole-v1", **options: Any) -> Any:
    return sw.DQN(env, **{**SMALL, "target_update_freq": 50, **options})


def sac(env: Any = "Pendulum-v1", **options: Any) -> Any:
    return sw.SAC(env, **{**SMALL, **options})


def td3(env: Any = "Pendulum-v1", **options: Any) -> Any:
    return sw.TD3(env, **{**SMALL, **options})


def td3_bc(**options: Any) -> Any:
    return sw.TD3BC(dataset(), **{"hidden": 8, "batch_size": 16, "seed": 3, **options})


MAKERS = {"dqn": dqn, "sac": sac, "td3": td3, "td3_bc": td3_bc}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
ONLINE = pytest.mark.parametrize("make", [dqn, sac, td3], ids=["dqn", "sac", "td3"])


def weights(algorithm: Any) -> dict[str, bytes]:
    return {
        f"{name}.{key}": np.asarray(value).tobytes()
        for name, network in algorithm.networks.items()
        for key, value in network.state_dict().items()
    }


class TestChoice:
    @EVERY
    def test_small_networks_on_the_cpu_are_native(self, make: Any) -> None:
        algorithm = make()
        assert algorithm.backend == "native"
        assert algorithm.backend_reason == "native code knows networks, device and options"

    @EVERY
    def test_torch_is_there_when_asked_for(self, make: Any) -> None:
        algorithm = make(backend="torch")
        assert (algorithm.backend, algorithm.backend_reason) == ("torch", "it was asked for")

    @pytest.mark.parametrize(
        ("make", "options", "reason"),
        [
            (dqn, {"noisy": True}, "noisy is on"),
            (dqn, {"compile": True}, "compile is on"),
            (dqn, {"policy": torch.nn.Linear(4, 2)}, "q_network is a network of its own"),
            (dqn, {"q_network": torch.nn.Linear(4, 2)}, "q_network is a network of its own"),
            (sac, {"use_gsde": True}, "use_gsde is on"),
            (sac, {"cuda_graph": True}, "cuda_graph is on"),
            (td3, {"critic": torch.nn.Linear(4, 1)}, "critic is a network of its own"),
            (td3, {"device": "meta"}, "device is 'meta'"),
            (td3_bc, {"compile": True}, "compile is on"),
        ],
        ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
    )
    def test_native_code_is_refused_with_the_reason(
        self, make: Any, options: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(ValueError, match=f"backend must be 'auto' or 'torch'.*{reason}"):
            make(backend="native", **options)

    def test_images_are_left_to_torch(self) -> None:
        class Images(probes.ConstantValue):
            observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

        algorithm = dqn(Images)
        assert algorithm.backend == "torch"
        assert "observations are images" in algorithm.backend_reason

    def test_a_changed_loss_is_what_computes(self) -> None:
        """The reason named the changed method, and another gradient than its own was taken."""
        calls = []

        class Mine(SACLearner):
            def actor_loss(self, *args: Any) -> Any:
                calls.append(args)
                return super().actor_loss(*args)

        class Named(sw.SAC):
            def save(self, path: Any) -> None:
                super().save(path)

        mine = sac(learner=Mine)
        assert mine.backend_reason == "Mine changes actor_loss"
        mine.train(40)
        assert len(calls) == mine.gradient_steps > 0
        assert Named("Pendulum-v1", **SMALL).backend == "native"
        assert sw.DDPG("Pendulum-v1", **SMALL).backend == "native"

    def test_actions_of_another_kind_are_refused_as_ever(self) -> None:
        with pytest.raises(TypeError, match="action_space must be Discrete"):
            dqn("Pendulum-v1")
        with pytest.raises(TypeError, match=r"Box for sac, got Discrete\(2\); use discrete_sac"):
            sac("CartPole-v1")


class TestMemory:
    @EVERY
    def test_both_start_from_the_same_weights(self, make: Any) -> None:
        assert weights(make(backend="native")) == weights(make(backend="torch"))

    def test_also_of_dueling_networks(self) -> None:
        for hidden in ((), (8,), (8, 7, 6)):
            runs = [
                weights(dqn(backend=backend, dueling=True, hidden=hidden))
                for backend in ("native", "torch")
            ]
            assert runs[0] == runs[1]

    @EVERY
    def test_the_module_sees_what_native_code_learns(self, make: Any) -> None:
        algorithm = make(backend="native")
        before = [parameter.clone() for parameter in algorithm.policy.parameters()]
        algorithm.train(60)
        after = list(algorithm.policy.parameters())
        assert not any(torch.equal(one, two) for one, two in zip(before, after, strict=True))
        flat = torch.cat([parameter.detach().flatten() for parameter in after])
        np.testing.assert_array_equal(flat, algorithm.networks[algorithm.acting].data)

    @EVERY
    def test_making_the_module_changes_nothing(self, make: Any) -> None:
        one, other = make(backend="native"), make(backend="native")
        _ = one.policy
        assert weights(one) == weights(other)

    @EVERY
    def test_a_batch_may_be_of_arrays_or_tensors(self, make: Any) -> None:
        results = []
        for kind in (np.asarray, torch.from_numpy):
            algorithm = make(backend="native")
            algorithm.train(60)
            drawn = algorithm.sampler.sample(7)
            columns: dict[str, Any] = {
                name: None if value is None else kind(np.array(value))
                for name, value in vars(drawn).items()
            }
            measured = algorithm.learner.update(ReplayBatch(**columns))
            numbers = {name: np.asarray(value).tolist() for name, value in measured.items()}
            results.append((numbers, weights(algorithm)))
        assert results[0] == results[1]


class TestObservations:
    @pytest.mark.parametrize(
        "space",
        [
            spaces.Discrete(5, start=-2),
            spaces.MultiDiscrete([2, 3]),
            spaces.MultiBinary(4),
            spaces.Box(-1.0, 1.0, (2, 3), np.float64),
            spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Discrete(3)}),
            spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,)))),
        ],
        ids=lambda space: type(space).__name__,
    )
    def test_of_every_space_give_the_steps_of_torch(self, space: Any) -> None:
        class Seen(probes.ConstantValue):
            observation_space = space

            def observe(self) -> Any:
                return space.sample()

        native, other = (dqn(Seen, backend=backend) for backend in ("native", "torch"))
        for algorithm in (native, other):
            space.seed(4)
            algorithm.train(20)
            algorithm.learner.follow(1.0)
        one, two = (
            algorithm.learner.update(algorithm.sampler.sample(1)) for algorithm in (native, other)
        )
        for name, value in two.items():
            np.testing.assert_allclose(one[name], value, rtol=1e-4, atol=1e-6)
        obs = space.sample()
        assert native.predict(obs) == other.predict(obs)

    @pytest.mark.parametrize("options", [{"normalize_obs": True}, {"normalize_rewards": True}])
    @ONLINE
    def test_that_are_normalized_give_the_steps_of_torch(
        self, make: Any, options: dict[str, Any]
    ) -> None:
        native, other = (
            make(backend=backend, learning_starts=100, **options) for backend in ("native", "torch")
        )
        batches = []
        for algorithm in (native, other):
            algorithm.train(60)
            if algorithm is other:
                algorithm.sampler.normalizer.refresh()
            batches.append(algorithm.sampler.sample(1))
        for name in ("obs", "next_obs", "rewards", "actions", "discounts"):
            one, two = (np.asarray(getattr(batch, name)) for batch in batches)
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@EVERY
class TestCheckpoints:
    @pytest.mark.long(but=["native-torch-dqn"])
    @pytest.mark.parametrize(("first", "second"), [("native", "torch"), ("torch", "native")])
    def test_one_loads_what_the_other_saved(
        self, make: Any, first: str, second: str, tmp_path: Path
    ) -> None:
        algorithm = make(backend=first)
        algorithm.train(60)
        algorithm.save(tmp_path / "a")
        given = {"dataset": dataset()} if make is td3_bc else {}
        loaded = type(algorithm).from_checkpoint(tmp_path / "a", backend=second, **given)
        assert loaded.backend == second
        assert weights(loaded) == weights(algorithm)
        for name, optimizer in loaded.optimizers.items():
            mine, theirs = optimizer.arrays(), algorithm.optimizers[name].arrays()
            assert mine.keys() == theirs.keys()
            for key, array in mine.items():
                np.testing.assert_array_equal(np.asarray(array), np.asarray(theirs[key]))
        obs = np.random.default_rng(0).normal(size=(50, *algorithm.observation_space.shape))
        np.testing.assert_allclose(loaded.predict(obs), algorithm.predict(obs), atol=1e-5)
        loaded.train(60)
        assert loaded.timesteps > algorithm.timesteps

    def test_another_network_is_refused(self, make: Any, tmp_path: Path) -> None:
        algorithm = make(backend="native")
        algorithm.save(tmp_path / "a")
        with pytest.raises(ValueError, match="network must be that of the checkpoint"):
            type(algorithm).from_checkpoint(tmp_path / "a", hidden=(9,))


@pytest.mark.long(but=["dqn"])
@EVERY
def test_the_same_seed_gives_the_same_run_whatever_the_threads(make: Any) -> None:
    runs = []
    for threads in (1, 2, 4):
        algorithm = make(threads=threads, backend="native", batch_size=300)
        algorithm.train(330)
        runs.append(weights(algorithm))
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("make", [partial(dqn, resumable), partial(sac, resumable_pendulum)])
def test_overlapped_runs_do_not_depend_on_their_reports(make: Any) -> None:
    runs = []
    for every in (7, 100):
        algorithm = make(overlap=True, n_envs=2, train_freq=2, log_interval=every)
        assert algorithm.backend == "native"
        algorithm.train(200)
        runs.append(weights(algorithm))
    assert runs[0] == runs[1]


@EVERY
def test_weights_that_are_not_numbers_stop_the_run(make: Any) -> None:
    algorithm = make(backend="native")
    algorithm.train(60)
    algorithm.networks[algorithm.acting].data[5] = np.nan
    with pytest.raises(NonFiniteError, match=r"must be finite, got .*nan.*learning diverged"):
        algorithm.train(60)


@pytest.mark.long
def test_a_native_run_does_not_import_torch(tmp_path: Path) -> None:
    program = """
import sys
import numpy as np
import sharpwave as sw

small = dict(hidden=(8,), learning_starts=20, batch_size=16)
folder = sys.argv[1]
runs = [
    (sw.DQN, "CartPole-v1", dict(prioritized=True, n_step=3, dueling=True)),
    (sw.SAC, "Pendulum-v1", dict(normalize_obs=True, save_buffer=True)),
    (sw.TD3, "Pendulum-v1", dict(noise_type="ou", overlap=True)),
]
for cls, env, options in runs:
    algo = cls(env, **small, **options)
    algo.train(60, run_dir=f"{folder}/{cls.name}")
    algo.predict(np.zeros(algo.observation_space.shape))
    algo.evaluate(2)
    algo.save(f"{folder}/checkpoint")
    loaded = cls.from_checkpoint(f"{folder}/checkpoint")
    loaded.train(60)
    assert "torch" not in sys.modules, cls
rng = np.random.default_rng(0)
obs, actions = rng.normal(size=(100, 3)), np.tanh(rng.normal(size=(100, 1)))
data = (obs, obs, actions, obs[:, 0], np.arange(100) % 10 == 9)
sw.TD3BC(data, hidden=8).train(10)
assert "torch" not in sys.modules
print(loaded.policy)
assert "torch" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
