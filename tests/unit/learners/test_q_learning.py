"""One gradient step on a fixed batch does what plain loops and differences say."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.algorithms.c51 import C51Learner
from sharpwave.learners.replay import ReplayBatch
from sharpwave.types import Array
from tests.reference import q_learning as reference

ROWS, N_ACTIONS = 7, 3
RATE = 1e-3


class Spaces(gym.Env[Any, Any]):
    """Says what observations and actions are, and is never stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(N_ACTIONS)

    def reset(self, **options: Any) -> Any:
        return np.zeros(2, np.float32), {}


KINDS: dict[str, Any] = {
    "double": sw.DQN,
    "single": partial(sw.DQN, double_dqn=False),
    "squares": partial(sw.DQN, loss="mse"),
    "dueling": partial(sw.DQN, dueling=True),
    "dueling, single": partial(sw.DQN, dueling=True, double_dqn=False),
    "c51": partial(sw.C51, n_atoms=4, v_min=-1.0, v_max=2.0),
    "dueling c51": partial(sw.C51, n_atoms=4, v_min=-1.0, v_max=2.0, dueling=True),
    "qr_dqn": partial(sw.QRDQN, n_quantiles=3, double_dqn=False),
    "dueling qr_dqn": partial(sw.QRDQN, n_quantiles=3, dueling=True),
}


def make(kind: str) -> Any:
    """A learner whose two networks are away from their start and from each other."""
    options = {"learning_rate": RATE, "max_grad_norm": None, "seed": 1, "backend": "torch"}
    algo = KINDS[kind](Spaces, hidden=(4, 3), **options)
    generator = torch.Generator().manual_seed(0)
    for flat in algo.flats.values():
        flat.data.add_(0.5 * torch.randn(len(flat.data), generator=generator))
    algo.learner.follow(1.0)
    return algo.learner


def draw_batch(weighted: bool, masked: bool) -> tuple[dict[str, Array], ReplayBatch]:
    """A batch as float64 arrays and as tensors; n-step discounts, 0 where an episode ended."""
    rng = np.random.default_rng(3)
    masks = rng.random((ROWS, N_ACTIONS)) < 0.5
    masks[np.arange(ROWS), rng.integers(N_ACTIONS, size=ROWS)] = True
    arrays: dict[str, Array] = {
        "obs": rng.normal(size=(ROWS, 2)),
        "actions": rng.integers(N_ACTIONS, size=ROWS),
        "rewards": 2 * rng.normal(size=ROWS),
        "next_obs": rng.normal(size=(ROWS, 2)),
        "discounts": 0.9 ** rng.integers(1, 4, size=ROWS) * (np.arange(ROWS) % 4 > 0),
        "weights": rng.uniform(0.2, 1.0, ROWS) if weighted else np.ones(ROWS),
        "next_masks": masks if masked else np.ones_like(masks),
    }
    tensors: dict[str, Any] = {
        name: torch.from_numpy(a if a.dtype.kind in "ib" else a.astype(np.float32))
        for name, a in arrays.items()
        if (name != "weights" or weighted) and (name != "next_masks" or masked)
    }
    return arrays, ReplayBatch(**tensors)


class Expected:
    """The expected metrics and changes of a step, in float64."""

    def __init__(self, algo: Any, batch: dict[str, Array]) -> None:
        self.algo = algo
        self.batch = batch
        self.weights = to_float64(algo.policy)
        self.n_atoms = algo.policy.n_atoms
        self.atoms = algo.atoms.double().numpy() if isinstance(algo, C51Learner) else None
        self.targets = self.find_targets(to_float64(algo.target))
        self.errors = self.find_errors(self.weights)
        self.loss = self.find_loss(self.weights)
        self.gradient = reference.numerical_gradient(self.find_loss, self.weights)

    def outputs(self, weights: reference.Weights, obs: Array) -> Array:
        return reference.outputs(weights, obs, N_ACTIONS, self.n_atoms)

    def values(self, outputs: Array) -> Array:
        """Mean returns [n] of [n, n_atoms]."""
        if self.atoms is not None:
            means: Array = reference.softmax(outputs) @ self.atoms
            return means
        return np.array(outputs.mean(-1))

    def find_targets(self, target: reference.Weights) -> Array:
        """The target network's outputs [B, n_atoms] for the best action, without the reward."""
        batch = self.batch
        slow = self.outputs(target, batch["next_obs"])
        fast = self.outputs(self.weights, batch["next_obs"])
        chooser = fast if self.algo.config.double_dqn else slow
        rows = []
        for row in range(ROWS):
            values = self.values(chooser[row])
            allowed = [a for a in range(N_ACTIONS) if batch["next_masks"][row, a]]
            _, best = max((values[action], action) for action in allowed)
            rows.append(slow[row, best])
        return np.stack(rows)

    def find_errors(self, weights: reference.Weights) -> Array:
        """TD errors of values, losses of distributions: [B]."""
        batch = self.batch
        outputs = self.outputs(weights, batch["obs"])
        chosen = np.stack([outputs[row, batch["actions"][row]] for row in range(ROWS)])
        if self.atoms is not None:
            projected = reference.project_categorical(
                reference.softmax(self.targets), batch["rewards"], batch["discounts"], self.atoms
            )
            crossed: Array = -(projected * np.log(reference.softmax(chosen))).sum(1)
            return crossed
        targets = batch["rewards"][:, None] + batch["discounts"][:, None] * self.targets
        if self.n_atoms > 1:
            return reference.quantile_huber(chosen, targets)
        return np.array((chosen - targets)[:, 0])

    def find_loss(self, weights: reference.Weights) -> float:
        errors = self.find_errors(weights)
        if self.n_atoms > 1:
            rows = errors
        elif self.algo.config.loss == "huber":
            rows = np.array([reference.huber(error) for error in errors])
        else:
            rows = errors**2
        return float(np.mean(self.batch["weights"] * rows))


def to_float64(network: Any) -> reference.Weights:
    return {name: w.detach().double().numpy() for name, w in network.state_dict().items()}


@pytest.mark.long(but=["double--"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_step(kind: str, weighted: bool, masked: bool) -> None:
    algo = make(kind)
    arrays, batch = draw_batch(weighted, masked)
    expected = Expected(algo, arrays)
    before, slow = to_float64(algo.policy), algo.flats["target"].data.clone()

    measured = algo.update(batch)
    td_errors = measured.pop("td_errors")
    measured = {name: value.item() for name, value in measured.items()}
    assert measured["loss"] == pytest.approx(expected.loss, rel=1e-4)
    assert measured["td_error"] == pytest.approx(np.abs(expected.errors).mean(), rel=1e-4)
    np.testing.assert_allclose(td_errors.numpy(), expected.errors, rtol=1e-4, atol=1e-5)
    norm = 0.0
    for name, parameter in algo.policy.named_parameters():
        assert parameter.grad is not None
        gradient = expected.gradient[name]
        np.testing.assert_allclose(parameter.grad.numpy(), gradient, rtol=1e-3, atol=2e-5)
        # Adam's first step is the learning rate in the direction of every single sign.
        found = parameter.grad.double().numpy()
        moved = before[name] - RATE * found / (np.abs(found) + algo.config.adam_eps)
        np.testing.assert_allclose(parameter.detach().numpy(), moved, rtol=1e-4, atol=1e-6)
        norm += float((gradient**2).sum())
    assert measured["grad_norm"] == pytest.approx(norm**0.5, rel=1e-3)
    assert torch.equal(algo.flats["target"].data, slow)


def test_long_gradients_are_clipped() -> None:
    algo = make("squares")
    algo.config = algo.config.replace(max_grad_norm=0.01)
    measured = algo.update(draw_batch(weighted=False, masked=False)[1])
    assert measured["grad_norm"] > 0.01  # the norm is that before
    assert algo.flats["q_network"].grad.norm().item() == pytest.approx(0.01, rel=1e-3)


class TestTarget:
    def test_copies_come_after_so_many_environment_steps(self) -> None:
        algo = make("double")
        algo.config = algo.config.replace(target_update_freq=100, n_envs=2, train_freq=20)
        algo.target_copied_at = algo.steps_lived()
        batch = draw_batch(weighted=False, masked=False)[1]
        copied = []
        for _ in range(0, 500, 40):
            weights = algo.flats["q_network"].data.clone()
            algo.update(batch)
            copied.append(torch.equal(algo.flats["target"].data, weights))
        assert [40 * i for i, was in enumerate(copied) if was] == [120, 240, 360, 480]

    def test_with_tau_it_follows_at_every_gradient_step(self) -> None:
        algo = make("double")
        algo.config = algo.config.replace(tau=0.25)
        before = algo.flats["target"].data.clone()
        algo.update(draw_batch(weighted=False, masked=False)[1])
        expected = 0.75 * before + 0.25 * algo.flats["q_network"].data
        torch.testing.assert_close(algo.flats["target"].data, expected)


class TestManyChoices:
    """The value of an action of several choices is the mean of what it chooses."""

    @pytest.mark.parametrize("cls", [sw.C51, sw.QRDQN, sw.DQN])
    def test_with_equal_branches_it_is_that_of_one_choice(self, cls: Any) -> None:
        class Twice(Spaces):
            action_space = spaces.MultiDiscrete([3, 3])  # type: ignore[assignment]

        options = {"hidden": (4,), "learning_rate": RATE, "max_grad_norm": None, "backend": "torch"}
        one, two = cls(Spaces, **options), cls(Twice, **options)
        for network, double in ((one.policy, two.policy), (one.target, two.target)):
            weights = network.state_dict()
            for name in ("net.2.weight", "net.2.bias"):
                weights[name] = torch.cat((weights[name], weights[name]))
            double.load_state_dict(weights)
        batches = [draw_batch(weighted=False, masked=False)[1] for _ in range(2)]
        batches[1].actions = torch.stack((batches[1].actions, batches[1].actions), 1)
        first, second = one.learner.update(batches[0]), two.learner.update(batches[1])
        for name in ("loss", "q_value", "td_error", "td_errors"):
            torch.testing.assert_close(first[name], second[name])
