"""Steps of SAC, TD3 and TD3+BC in native code are those of torch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.replay import ReplayBatch
from sharpwave.nn.mlp import ACTIVATIONS

Floats = npt.NDArray[np.float32]
N_OBS = 5


def environment(n_actions: int) -> Any:
    """A class that says what observations and actions are."""

    class Spaces(gym.Env[Any, Any]):
        observation_space = spaces.Box(-np.inf, np.inf, (N_OBS,), np.float32)
        action_space = spaces.Box(-1.0, 1.0, (n_actions,), np.float32)

    return Spaces


def dataset(n_actions: int) -> tuple[Any, ...]:
    """Anything to make an offline algorithm with."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(40, N_OBS)).astype("f")
    actions = rng.uniform(-1, 1, (40, n_actions)).astype("f")
    return obs, obs, actions, obs[:, 0], np.arange(40) % 10 == 9


def make(cls: Any, n_actions: int = 2, **options: Any) -> Any:
    """An algorithm with small networks."""
    options = {"hidden": (16, 12), "seed": 4, **options}
    if cls is not sw.TD3BC:
        return cls(environment(n_actions), **options)
    options |= {"act_low": -1.0, "act_high": 1.0, "normalize_obs": False}
    return cls(dataset(n_actions), **options)


class Pair:
    """An algorithm in native code and in torch, some way from their start."""

    def __init__(self, cls: Any, n_actions: int = 2, **options: Any) -> None:
        self.n_actions = n_actions
        self.native, self.torch = (
            make(cls, n_actions, **{"learning_rate": 3e-3, **options}, backend=backend)
            for backend in ("native", "torch")
        )
        for algorithm in (self.native, self.torch):
            algorithm.learner.follow(1.0)
        rng = np.random.default_rng(9)
        for name, flat in self.native.networks.items():
            flat.data += 0.2 * rng.normal(size=len(flat.data)).astype("f")
            self.torch.networks[name].load_state_dict(
                {key: torch.from_numpy(array) for key, array in flat.state_dict().items()}
            )

    def batch(self, n: int = 40, *, seed: int = 1, weighted: bool = False) -> ReplayBatch:
        rng = np.random.default_rng(seed)

        def floats(*shape: int) -> Floats:
            return rng.normal(size=shape).astype("f")

        return ReplayBatch(
            obs=floats(n, N_OBS),
            actions=np.tanh(floats(n, self.n_actions)),
            rewards=floats(n),
            next_obs=floats(n, N_OBS),
            discounts=(0.9 * (rng.random(n) < 0.8)).astype("f"),
            weights=rng.uniform(0.1, 1, n).astype("f") if weighted else None,
        )

    def noise(self, n: int) -> Floats:
        """The next draws of the step with torch."""
        generator = torch.Generator()
        generator.set_state(self.torch.generator.get_state())
        draws = 2 if isinstance(self.torch, sw.SAC) else 1
        noise = [torch.empty(n, self.n_actions).normal_(generator=generator) for _ in range(draws)]
        return (torch.stack(noise) if draws == 2 else noise[0]).numpy()

    def step(self, batch: ReplayBatch, *, rtol: float = 1e-4) -> None:
        """One step of both, and what it measured."""
        columns: dict[str, Any] = {
            name: None if value is None else torch.from_numpy(value)
            for name, value in vars(batch).items()
        }
        tensors = ReplayBatch(**columns)
        found = self.native.learner.update(batch, self.noise(len(batch.rewards)))
        expected = self.torch.learner.update(tensors)
        td_errors = expected.pop("td_errors", None)
        if td_errors is not None:
            close(found["td_errors"], td_errors, rtol)
        measured = torch.stack(list(expected.values()))
        scale = measured.abs().max().item()
        np.testing.assert_allclose(
            [found[name] for name in expected], measured, rtol=rtol, atol=rtol * scale
        )
        assert self.native.gradient_steps == self.torch.gradient_steps

    def check(self, rtol: float = 1e-5) -> None:
        """Parameters, gradients and optimizers are the same."""
        for name, flat in self.native.networks.items():
            for key, tensor in self.torch.networks[name].state_dict().items():
                close(flat.state_dict()[key], tensor, rtol)
        for name, optimizer in self.native.optimizers.items():
            for key, tensor in self.torch.optimizers[name].arrays().items():
                close(optimizer.arrays()[key], tensor, rtol)


def close(found: Any, expected: torch.Tensor, rtol: float) -> None:
    """The same up to rounding, by the largest of the numbers."""
    wanted = expected.numpy()
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol * np.abs(wanted).max())


ALGORITHMS = [sw.SAC, sw.TD3, sw.DDPG, sw.TD3BC]


@pytest.mark.parametrize("cls", ALGORITHMS)
class TestSteps:
    @pytest.mark.parametrize("n_actions", [1, 2, 7, 17])
    def test_of_any_number_of_actions(self, cls: Any, n_actions: int) -> None:
        pair = Pair(cls, n_actions)
        for i in range(2):
            pair.step(pair.batch(seed=i))
        pair.check(rtol=1e-4)

    @pytest.mark.parametrize(
        "hidden", [(), (8,), (9, 8, 7), {"actor": (8,), "critic": (9, 8)}], ids=str
    )
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_of_every_depth(self, cls: Any, hidden: Any, activation: str) -> None:
        pair = Pair(cls, hidden=hidden, activation=activation)
        for i in range(2):
            pair.step(pair.batch(seed=i))
        pair.check(rtol=1e-4)

    @pytest.mark.parametrize("n", [1, 127, 128, 129, 300])
    def test_of_batches_of_every_size(self, cls: Any, n: int) -> None:
        pair = Pair(cls)
        for i in range(2):
            pair.step(pair.batch(n, seed=i))
        pair.check(rtol=1e-4)

    @pytest.mark.long(but=["SAC"])
    def test_50_in_a_row(self, cls: Any) -> None:
        pair = Pair(cls, hidden=(32, 32), learning_rate=1e-3)
        for i in range(50):
            pair.step(pair.batch(seed=i), rtol=2e-3)
        pair.check(rtol=2e-3)

    def test_results_do_not_depend_on_the_number_of_threads(self, cls: Any) -> None:
        pairs = [Pair(cls, threads=threads) for threads in (1, 2, 4)]
        for pair in pairs:
            for i in range(4):
                pair.native.learner.update(pair.batch(500, seed=i))
        first = pairs[0].native.networks
        for pair in pairs[1:]:
            for name, flat in pair.native.networks.items():
                assert np.array_equal(flat.data, first[name].data)

    def test_gradients(self, cls: Any) -> None:
        options = {} if cls in (sw.SAC, sw.DDPG) else {"policy_delay": 1}
        pair = Pair(cls, learning_rate=0.0, **options)
        pair.step(pair.batch(200, weighted=cls is not sw.TD3BC), rtol=1e-5)
        for name in ("actor", "critics"):
            grad = pair.torch.flats[name].grad
            assert grad.abs().max() > 0
            close(pair.native.networks[name].grad, grad, 1e-5)

    def test_first_weights_are_those_of_torch(self, cls: Any) -> None:
        native, twin = (make(cls, backend=backend) for backend in ("native", "torch"))
        assert set(native.networks) == set(twin.networks)
        for name, flat in native.networks.items():
            state = twin.networks[name].state_dict()
            assert list(state) == list(flat.state_dict())
            for key, array in flat.state_dict().items():
                assert np.array_equal(array, state[key])


@pytest.mark.long(but=["{'n_critics': 1}-SAC"])
@pytest.mark.parametrize("cls", [sw.SAC, sw.TD3, sw.DDPG])
@pytest.mark.parametrize(
    "options",
    [
        {"n_critics": 1},
        {"n_critics": 3},
        {"max_grad_norm": 0.05},
        {"tau": 0.5},
        {"tau": 1.0},
        {"tau": 0.0},
        {"critic_learning_rate": 1e-4},
        {"critic_learning_rate": 0.0},
    ],
    ids=str,
)
def test_options(cls: Any, options: dict[str, Any]) -> None:
    pair = Pair(cls, **options)
    for i in range(3):
        pair.step(pair.batch(seed=i))
    pair.check(rtol=1e-4)


@pytest.mark.long(but=["{'ent_coef': 0.1}"])
@pytest.mark.parametrize(
    "options",
    [
        {"ent_coef": 0.1},
        {"ent_coef": 0.0},
        {"ent_coef": "auto_0.1"},
        {"auto_entropy": False},
        {"target_entropy": 0.7},
        {"target_update_interval": 2},
        {"alpha_learning_rate": 0.1},
        {"alpha_learning_rate": 0.0, "critic_learning_rate": 1e-4},
    ],
    ids=str,
)
def test_options_of_sac(options: dict[str, Any]) -> None:
    pair = Pair(sw.SAC, **options)
    for i in range(4):
        pair.step(pair.batch(seed=i))
    pair.check(rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"policy_delay": 1}, {"policy_delay": 3}, {"target_noise": 0.0}, {"noise_clip": 0.01}],
    ids=str,
)
@pytest.mark.parametrize("cls", [sw.TD3, sw.TD3BC])
def test_options_of_td3(cls: Any, options: dict[str, Any]) -> None:
    pair = Pair(cls, **options)
    for i in range(4):
        pair.step(pair.batch(seed=i))
    pair.check(rtol=1e-4)


@pytest.mark.parametrize("cls", [sw.SAC, sw.TD3, sw.DDPG])
def test_weights_of_prioritized_draws(cls: Any) -> None:
    pair = Pair(cls)
    for i in range(3):
        pair.step(pair.batch(seed=i, weighted=True))
    pair.check(rtol=1e-4)


def test_deviations_out_of_bounds_have_no_gradient() -> None:
    pair = Pair(sw.SAC)
    pair.native.networks["actor"]["net.4.bias"][2:] = [3.0, -21.0]
    actor = {k: torch.from_numpy(v) for k, v in pair.native.networks["actor"].state_dict().items()}
    pair.torch.networks["actor"].load_state_dict(actor)
    pair.step(pair.batch())
    pair.check(rtol=1e-4)


class TestActing:
    @pytest.mark.parametrize("cls", ALGORITHMS)
    @pytest.mark.parametrize("n", [1, 3, 200])
    def test_the_mode_is_that_of_torch(self, cls: Any, n: int) -> None:
        pair = Pair(cls, 3)
        obs = np.random.default_rng(n).normal(size=(n, N_OBS)).astype("f")
        found, expected = pair.native.predict(obs), pair.torch.predict(obs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    def test_draws_of_sac_have_the_density_of_its_policy(self) -> None:
        pair = Pair(sw.SAC, 1)
        obs = np.repeat(np.random.default_rng(0).normal(size=(1, N_OBS)), 50_000, 0).astype("f")
        drawn = pair.native.learner.act(obs, explore=True).actions
        mean, log_std = (x.detach().numpy() for x in pair.torch.policy(torch.from_numpy(obs[:1])))
        raw = np.arctanh(np.clip(drawn.astype(np.float64), -1 + 1e-7, 1 - 1e-7))
        assert abs(raw.mean() - mean.item()) < 0.03 * np.exp(log_std.item())
        assert abs(raw.std() / np.exp(log_std.item()) - 1) < 0.03

    def test_noise_of_td3_has_the_deviation_that_is_asked_for(self) -> None:
        pair = Pair(sw.TD3, 1, exploration_noise=0.05)
        obs = np.zeros((50_000, N_OBS), "f")
        actor = pair.native.learner.actor
        best = actor.mode(obs)
        noise = actor.explore(obs, 0.05, (3, 4)) - best
        inside = np.abs(best[0]) < 0.7
        assert inside
        assert abs(noise.std() - 0.05) < 0.002
        assert abs(noise.mean()) < 0.002

    @pytest.mark.parametrize("cls", [sw.SAC, sw.TD3])
    def test_draws_are_a_function_of_seed_and_call(self, cls: Any) -> None:
        obs = np.zeros((4, N_OBS), "f")
        options = (0.1,) if cls is sw.TD3 else ()
        actor = Pair(cls).native.learner.actor
        one, same, other, another = (
            actor.explore(obs, *options, draw) for draw in ((1, 2), (1, 2), (1, 3), (2, 2))
        )
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)
        assert not np.array_equal(one, another)


@pytest.mark.long(but=["obs-obs must have shape \\(n, 5\\), got \\(40, 4\\)-SAC"])
@pytest.mark.parametrize("cls", ALGORITHMS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.zeros((40, 4), "f")}, r"obs must have shape \(n, 5\), got \(40, 4\)"),
        ({"obs": np.zeros((0, 5), "f")}, "obs must have rows, got none"),
        ({"next_obs": np.zeros((4, 5), "f")}, r"next_obs must have shape \(40, 5\), got \(4, 5\)"),
        ({"rewards": np.zeros((40, 1), "f")}, r"rewards must have shape \(40,\), got \(40, 1\)"),
        ({"discounts": np.zeros(3, "f")}, r"discounts must have shape \(40,\), got \(3,\)"),
        ({"weights": np.zeros(3, "f")}, r"weights must have shape \(40,\), got \(3,\)"),
        ({"actions": np.zeros((40, 1), "f")}, r"actions must have shape \(40, 2\), got \(40, 1\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_batches_change_nothing(cls: Any, change: dict[str, Any], message: str) -> None:
    native = Pair(cls).native
    batch = Pair(cls).batch()
    for name, value in change.items():
        setattr(batch, name, value)
    before = {name: flat.data.copy() for name, flat in native.networks.items()}
    with pytest.raises(ValueError, match=message):
        native.learner.update(batch)
    for name, flat in native.networks.items():
        assert np.array_equal(flat.data, before[name])


@pytest.mark.parametrize("cls", ALGORITHMS)
def test_noise_of_another_shape(cls: Any) -> None:
    pair = Pair(cls)
    with pytest.raises(ValueError, match="noise must have shape"):
        pair.native.learner.update(pair.batch(), np.zeros((40, 3), "f"))
