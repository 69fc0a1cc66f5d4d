"""Widths, activations and learning rates mean one thing in every algorithm, on both backends."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import sharpwave as sw
from sharpwave.algorithms.registry import LANGUAGE_NAMES, algorithm_class, algorithm_names
from sharpwave.config.network import ActivationName
from sharpwave.config.schedules import Linear
from sharpwave.nn.mlp import ACTIVATIONS as MODULES
from sharpwave.nn.stacked import StackedLinear
from tests.contract.test_offline import columns

ONLINE: dict[str, tuple[Any, str]] = {
    "ppo": (sw.PPO, "Pendulum-v1"),
    "a2c": (sw.A2C, "CartPole-v1"),
    "hybrid_ppo": (sw.HybridPPO, "CartPole-v1"),
    "impala": (sw.IMPALA, "CartPole-v1"),
    "appo": (sw.APPO, "CartPole-v1"),
    "sac": (sw.SAC, "Pendulum-v1"),
    "tqc": (sw.TQC, "Pendulum-v1"),
    "crossq": (sw.CrossQ, "Pendulum-v1"),
    "discrete_sac": (sw.DiscreteSAC, "CartPole-v1"),
    "td3": (sw.TD3, "Pendulum-v1"),
    "ddpg": (sw.DDPG, "Pendulum-v1"),
}
OFFLINE: dict[str, Any] = {
    "td3_bc": sw.TD3BC,
    "rebrac": sw.ReBRAC,
    "iql": sw.IQL,
    "cql": sw.CQL,
}
NATIVE = ("ppo", "a2c", "hybrid_ppo", "impala", "appo", "sac", "td3", "ddpg", "td3_bc")
ON_POLICY = ("ppo", "a2c", "hybrid_ppo", "impala", "appo")
TWO: list[tuple[str, str]] = [
    *((name, "torch") for name in (*ONLINE, *OFFLINE)),
    *((name, "native") for name in NATIVE),
]
"""Algorithms of an actor and a critic, with their backends."""


def make(name: str, **options: Any) -> Any:
    if name in OFFLINE:
        small = {"batch_size": 16, **options}
        return OFFLINE[name](columns(), **small)
    cls, env = ONLINE[name]
    if name in ON_POLICY:
        return cls(env, **{"n_envs": 2, "n_steps": 8, **options})
    return cls(env, **{"learning_starts": 8, "batch_size": 16, **options})


def shapes(algo: Any, network: str) -> list[tuple[int, ...]]:
    """Of the weights of the linear layers of the actor or the critic."""
    own = {"actor": "policy", "critic": "critics"}[network]
    module = getattr(algo.policy, network) if hasattr(algo.policy, network) else getattr(algo, own)
    layers = [one for one in module.modules() if isinstance(one, (nn.Linear, StackedLinear))]
    return [tuple(layer.weight.shape) for layer in layers]


def n_layers(algo: Any, network: str, width: int) -> int:
    """Hidden layers of this width, as weights that lead to it or from it."""
    return sum(width in shape for shape in shapes(algo, network)) - 1


@pytest.mark.parametrize("name", sorted({*algorithm_names()} - {*LANGUAGE_NAMES, "dreamer_v3"}))
def test_one_number_is_two_layers_everywhere(name: str) -> None:
    """hidden=64 was one layer in PPO and two in DQN."""
    config: Any = algorithm_class(name).Config
    for made in (config(hidden=64), config.from_text({"hidden": "64"}), config(hidden="64")):
        assert made.hidden == (64, 64)
    for made in (config(hidden=(64,)), config.from_text({"hidden": "64,"}), config(hidden=[64])):
        assert made.hidden == (64,)
    assert config.from_text({"hidden": "64,32"}).hidden == (64, 32)
    with pytest.raises(ValueError, match="hidden must be greater than 0"):
        config(hidden=(64, 0))
    with pytest.raises(TypeError, match="hidden must be an integer"):
        config(hidden=None)


@pytest.mark.long(but=["ppo-torch", "sac-torch"])
@pytest.mark.parametrize(("name", "backend"), TWO)
def test_actor_and_critic_have_widths_of_their_own(name: str, backend: str, tmp_path: Path) -> None:
    hidden = {"actor": 21, "critic": (33,)}
    algo = make(name, hidden=hidden, backend=backend, seed=1)
    assert algo.backend == backend
    assert (n_layers(algo, "actor", 21), n_layers(algo, "critic", 21)) == (2, -1)
    assert (n_layers(algo, "actor", 33), n_layers(algo, "critic", 33)) == (-1, 1)
    algo.train(32)
    algo.save(tmp_path / "agent")
    loaded = type(algo).from_checkpoint(tmp_path / "agent")
    assert loaded.config.hidden == {"actor": (21, 21), "critic": (33,)}
    assert shapes(loaded, "critic") == shapes(algo, "critic")
    read = type(algo.config).from_text({"hidden": '{"actor": 21, "critic": [33]}'})
    assert read.hidden == algo.config.hidden
    for write, suffix in (("to_yaml", "yaml"), ("to_toml", "toml"), ("to_json", "json")):
        getattr(algo.config, write)(tmp_path / f"config.{suffix}")
        read = type(algo.config).from_file(tmp_path / f"config.{suffix}")
        assert read.hidden == algo.config.hidden


@pytest.mark.parametrize("name", ["dqn", "c51", "qr_dqn", "bc"])
def test_one_network_has_one_list_of_widths(name: str) -> None:
    with pytest.raises(ValueError, match="hidden must be widths of one network"):
        algorithm_class(name).Config.from_dict({"hidden": {"actor": 8, "critic": 8}})


@pytest.mark.parametrize("hidden", [{"actor": 8}, {"actor": 8, "critics": 8}, {}])
def test_both_networks_are_named(hidden: Any) -> None:
    with pytest.raises(ValueError, match="hidden must name actor and critic"):
        sw.PPOConfig(hidden=hidden)


def test_every_activation_of_the_networks_is_an_option() -> None:
    assert set(get_args(ActivationName)) == set(MODULES)


@pytest.mark.long(but=["ppo-tanh", "sac-tanh"])
@pytest.mark.parametrize("activation", MODULES)
@pytest.mark.parametrize("name", ["ppo", "sac", "td3_bc", "tqc"])
def test_every_activation_trains(name: str, activation: str) -> None:
    algo = make(name, activation=activation, hidden=8)
    assert (algo.backend == "native") == (name != "tqc")
    algo.train(32)
    assert any(isinstance(layer, MODULES[activation]) for layer in algo.policy.modules())


RATES: list[tuple[str, str]] = [(name, b) for name, b in TWO if name not in ON_POLICY]


def moves(algo: Any, change: Callable[[], Any]) -> dict[str, float]:
    """The distance by which something moves each of the networks that are learned."""
    before = {name: copy.deepcopy(numbers(algo, name)) for name in algo.optimizers}
    change()
    return {name: float(np.abs(numbers(algo, name) - before[name]).max()) for name in before}


def numbers(algo: Any, name: str) -> Any:
    network = algo.networks[name]
    if isinstance(network, nn.Module):
        return torch.cat([one.detach().ravel() for one in network.parameters()]).numpy()
    return network.data


@pytest.mark.long(but=["sac-torch"])
@pytest.mark.parametrize(("name", "backend"), RATES)
def test_critics_have_a_learning_rate_of_their_own(name: str, backend: str) -> None:
    """Actor, critic and temperature shared one learning rate."""
    critics = ("critics", "value")
    options: dict[str, Any] = {"hidden": 32, "backend": backend, "learning_rate": 1e-3, "seed": 1}
    still = make(name, critic_learning_rate=0.0, **options)
    moved = moves(still, lambda: still.train(40))
    assert all((moved[own] == 0.0) == (own in critics) for own in moved if own != "multiplier")
    alone = make(name, **{**options, "learning_rate": 0.0}, critic_learning_rate=1e-3)
    moved = moves(alone, lambda: alone.train(40))
    assert all((moved[own] > 0.0) == (own in critics) for own in moved)


@pytest.mark.long(but=["sac-torch"])
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, b) for name, b in RATES if name in ("sac", "tqc", "crossq", "discrete_sac", "cql")],
)
def test_the_temperature_has_a_learning_rate_of_its_own(name: str, backend: str) -> None:
    options: dict[str, Any] = {"hidden": 32, "backend": backend, "learning_rate": 1e-3, "seed": 1}
    still = make(name, alpha_learning_rate=0.0, **options)
    moved = moves(still, lambda: still.train(40))
    assert moved["temperature"] == 0.0 < min(moved["actor"], moved["critics"])
    alone = make(name, **{**options, "learning_rate": 0.0}, alpha_learning_rate=1e-3)
    moved = moves(alone, lambda: alone.train(40))
    assert moved["temperature"] > 0.0 == max(moved["actor"], moved["critics"])


@pytest.mark.parametrize("name", ["sac", "td3_bc", "iql"])
def test_rates_of_their_own_are_schedules_and_options(name: str, tmp_path: Path) -> None:
    algo = make(name, hidden=8, critic_learning_rate=Linear(1e-3, 0.0), learning_rate=1e-3)
    algo.learner.follow(0.5)
    assert float(algo.optimizers["critics"].lr) == pytest.approx(5e-4)
    config = type(algo.config).from_text({"critic_learning_rate": "linear(1e-3, 0)"})
    assert config.critic_learning_rate == Linear(1e-3, 0.0)
    algo.save(tmp_path / "agent")
    loaded = type(algo).from_checkpoint(tmp_path / "agent")
    assert loaded.config.critic_learning_rate == Linear(1e-3, 0.0)


def test_a_schedule_of_the_critics_alone_is_followed_offline() -> None:
    algo: Any = make("td3_bc", hidden=8, critic_learning_rate=Linear(1e-3, 0.0))
    algo.train(40)
    assert 0.0 < float(algo.optimizers["critics"].lr) < 1e-4


@pytest.mark.parametrize("backend", ["native", "torch"])
class TestClippedValues:
    def updated(self, backend: str, **options: Any) -> Any:
        algo = make("ppo", backend=backend, hidden=8, seed=1, anneal_lr=False, **options)
        algo.train(64)
        return torch.tensor(algo.block)

    def test_a_range_of_their_own_clips_values(self, backend: str) -> None:
        plain = self.updated(backend)
        narrow = self.updated(backend, clip_range_vf=1e-3)
        assert not torch.equal(narrow, plain)
        # None of the values moves by so much.
        torch.testing.assert_close(self.updated(backend, clip_range_vf=1e6), plain)

    def test_without_it_the_range_is_that_of_ratios(self, backend: str) -> None:
        of_ratios = self.updated(backend, clip_vloss=True, clip_eps=0.01)
        same = self.updated(backend, clip_range_vf=0.01, clip_eps=0.01)
        own = self.updated(backend, clip_vloss=True, clip_range_vf=1e-3, clip_eps=0.01)
        torch.testing.assert_close(same, of_ratios, rtol=0, atol=0)
        assert not torch.equal(own, of_ratios)

    def test_it_may_be_a_schedule(self, backend: str) -> None:
        algo = make("ppo", backend=backend, clip_range_vf=Linear(0.4, 0.0))
        algo.learner.follow(0.5)
        assert (float(algo.value_clip), float(algo.clip)) == pytest.approx((0.2, 0.2))


def test_a_range_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="clip_range_vf must be greater than 0"):
        sw.PPOConfig(clip_range_vf=0.0)
