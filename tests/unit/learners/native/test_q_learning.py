"""Steps of Q-learning in native code are those of torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import nn
from sharpwave.learners.native import Adam, FlatArrays, QActor, QLayout, QSteps
from sharpwave.learners.replay import ReplayBatch
from sharpwave.nn.mlp import ACTIVATIONS
from tests.unit.nn.q_cases import ACTIONS, Case, q_loss


class Native(Case):
    """The same networks and batch for native code."""

    def __init__(
        self,
        actions: str = "discrete",
        *,
        hidden: tuple[int, ...] = (16, 12),
        activation: str = "relu",
        dueling: bool = False,
        threads: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(actions, hidden=hidden, activation=activation, dueling=dueling, **options)
        self.layout = QLayout(
            n_inputs=6,
            hidden=hidden,
            activation=activation,
            choices=self.online.branches.sizes,
            dueling=dueling,
        )
        self.online_flat, self.target_flat = (
            FlatArrays(self.layout.shapes) for _ in (self.online, self.target)
        )
        self.online_flat.load_state_dict(self.online.state_dict())
        self.target_flat.load_state_dict(self.target.state_dict())
        self.adam = Adam(self.online_flat, lr=1e-2, eps=1e-8)
        self.learner = QSteps(
            self.layout, self.online_flat, self.adam, self.target_flat, threads=threads
        )

    @property
    def batch(self) -> ReplayBatch:
        """With rows of numbers as observations."""
        batch = super().batch
        batch.obs, batch.next_obs = batch.obs.flatten(1), batch.next_obs.flatten(1)
        return batch

    def native(self, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        self.online_flat.grad.fill(np.nan)  # what is left over from before must not matter
        found = self.learner.gradient(self.batch, **options)
        metrics, errors, grad = (torch.from_numpy(x) for x in (*found, self.online_flat.grad))
        return grad, metrics, errors

    def check(self, *, double: bool = True, huber: bool = True) -> None:
        found = self.native(double=double, huber=huber)
        expected = self.by_autograd(double=double, huber=huber)
        for one, other in zip(found, expected, strict=True):
            scale = float(other.abs().max())
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("actions", ACTIONS)
class TestGradient:
    @pytest.mark.parametrize("double", [False, True])
    @pytest.mark.parametrize("huber", [False, True])
    def test_of_the_loss(self, actions: str, dueling: bool, double: bool, huber: bool) -> None:
        Native(actions, dueling=dueling).check(double=double, huber=huber)

    @pytest.mark.parametrize("double", [False, True])
    def test_with_masks(self, actions: str, dueling: bool, double: bool) -> None:
        Native(actions, dueling=dueling, masks=True).check(double=double)

    @pytest.mark.parametrize("huber", [False, True])
    def test_with_weights(self, actions: str, dueling: bool, huber: bool) -> None:
        Native(actions, dueling=dueling, weights=True).check(huber=huber)

    @pytest.mark.parametrize("hidden", [(), (8,), (9, 8, 7)])
    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_of_every_depth(
        self, actions: str, dueling: bool, hidden: tuple[int, ...], activation: str
    ) -> None:
        Native(actions, dueling=dueling, hidden=hidden, activation=activation).check()


@pytest.mark.parametrize("n_rows", [1, 127, 128, 129, 300])
def test_batches_of_every_size(n_rows: int) -> None:
    Native(n_rows=n_rows, weights=True).check()


@pytest.mark.parametrize("dueling", [False, True])
def test_results_do_not_depend_on_the_number_of_threads(dueling: bool) -> None:
    cases = [Native(n_rows=500, dueling=dueling, threads=n) for n in (1, 2, 4)]
    for case in cases:
        for _ in range(3):
            case.learner.step(case.batch, tau=0.1)
    for case in cases[1:]:
        assert np.array_equal(case.online_flat.data, cases[0].online_flat.data)
        assert np.array_equal(case.target_flat.data, cases[0].target_flat.data)


@pytest.mark.long(but=["None-1.0"])
@pytest.mark.parametrize("tau", [1.0, 0.05])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_50_steps_are_those_of_torch(tau: float, max_grad_norm: float | None) -> None:
    case = Native(hidden=(32, 32))
    optimizer = nn.Adam(case.flat, lr=1e-2, eps=1e-8)
    for i in range(50):
        batch = rows(case.batch, np.random.default_rng(i).integers(0, 32, 16))
        metrics, errors = case.learner.step(batch, max_grad_norm=max_grad_norm, tau=tau)
        batch.obs, batch.next_obs = (x.unflatten(1, (2, 3)) for x in (batch.obs, batch.next_obs))
        networks = case.online, case.target
        loss, torch_metrics, torch_errors = q_loss(*networks, batch, double=True, huber=True)
        case.flat.backward(loss)
        norm = case.flat.clip_grad_norm(max_grad_norm or np.inf)
        optimizer.step()
        if tau < 1:
            case.flat_target.data.lerp_(case.flat.data, tau)
        expected = [*torch_metrics.tolist(), norm.item()]
        np.testing.assert_allclose(metrics, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(errors, torch_errors, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(case.online_flat.data, case.flat.data, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(case.target_flat.data, case.flat_target.data, rtol=1e-4, atol=1e-4)
    for name, array in case.adam.arrays().items():
        np.testing.assert_allclose(array, optimizer.arrays()[name], rtol=1e-3, atol=1e-4)


def rows(batch: ReplayBatch, drawn: Any) -> ReplayBatch:
    """Some rows of a batch."""
    return ReplayBatch(
        batch.obs[drawn],
        batch.actions[drawn],
        batch.rewards[drawn],
        batch.next_obs[drawn],
        batch.discounts[drawn],
    )


def test_the_learning_rate_is_the_optimizers() -> None:
    case = Native()
    before = case.online_flat.data.copy()
    case.adam.set_lr(0.0)
    case.learner.step(case.batch)
    assert np.array_equal(case.online_flat.data, before)
    case.adam.set_lr(1e-3)
    case.learner.step(case.batch)
    assert not np.array_equal(case.online_flat.data, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.zeros((32, 5), "f")}, r"obs must have shape \(n, 6\), got \(32, 5\)"),
        ({"obs": np.zeros((0, 6), "f")}, "obs must have rows, got none"),
        ({"next_obs": np.zeros((31, 6), "f")}, r"next_obs must have shape \(32, 6\), got \(31"),
        ({"rewards": np.zeros((32, 1), "f")}, r"rewards must have shape \(32,\), got \(32, 1\)"),
        ({"discounts": np.zeros(3, "f")}, r"discounts must have shape \(32,\), got \(3,\)"),
        ({"weights": np.zeros(3, "f")}, r"weights must have shape \(32,\), got \(3,\)"),
        ({"actions": np.zeros(31, int)}, r"actions must have shape \(32,\), got \(31,\)"),
        ({"actions": np.full(32, 5)}, r"actions must be in \[0, 5\), got 5 in row 0"),
        ({"actions": np.full(32, -1)}, r"actions must be in \[0, 5\), got -1 in row 0"),
        (
            {"next_masks": np.ones((32, 6), bool)},
            r"next_allowed must have shape \(32, 5\), got \(32, 6\)",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_bad_batches_change_nothing(change: dict[str, Any], message: str) -> None:
    case = Native()
    batch = case.batch
    for name, value in change.items():
        setattr(batch, name, value)
    before = case.online_flat.data.copy()
    with pytest.raises(ValueError, match=message):
        case.learner.step(batch)
    assert np.array_equal(case.online_flat.data, before)
    assert case.adam.arrays()["steps"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_inputs": 0}, "n_inputs must hold sizes from 1"),
        ({"hidden": (0,)}, "hidden must hold sizes from 1"),
        ({"choices": ()}, "choices must not be empty"),
        (
            {"activation": "mish"},
            "one of tanh, relu, leaky_relu, elu, selu, gelu, silu, got 'mish'",
        ),
        ({"hidden": (3,)}, r"online data must have shape \(\d+,\), got"),
    ],
    ids=str,
)
def test_bad_construction(change: dict[str, Any], message: str) -> None:
    case = Native()
    layout = dataclasses.replace(case.layout, **change)
    with pytest.raises(ValueError, match=message):
        QSteps(layout, case.online_flat, case.adam, case.target_flat)
    with pytest.raises(ValueError, match=message.replace("online data", "parameters")):
        QActor(layout, case.online_flat)


class TestActing:
    @pytest.mark.parametrize("actions", ACTIONS)
    @pytest.mark.parametrize("dueling", [False, True])
    @pytest.mark.parametrize("masks", [False, True])
    @pytest.mark.parametrize("n_rows", [1, 3, 200])
    def test_the_best_actions(self, actions: str, dueling: bool, masks: bool, n_rows: int) -> None:
        case = Native(actions, dueling=dueling, masks=masks, n_rows=n_rows)
        expected = case.online.branches.greedy(case.online(case.obs), case.next_masks)
        allowed = None if case.next_masks is None else case.next_masks.numpy()
        found = QActor(case.layout, case.online_flat).act(case.batch.obs, allowed)
        assert np.array_equal(found, expected.reshape(n_rows, -1))

    def test_random_actions_are_uniform_among_the_allowed(self) -> None:
        case = Native("multi discrete")
        obs = np.zeros((20_000, 6), np.float32)
        masks = np.ones((20_000, 9), bool)
        masks[:, [2, 8]] = False
        actor = QActor(case.layout, case.online_flat)
        actions = actor.explore(obs, masks, epsilon=1.0, draw=(1, 2))
        for choice, allowed in enumerate(([0, 1], [1, 2, 3], [0, 1])):
            values, counts = np.unique(actions[:, choice], return_counts=True)
            assert values.tolist() == allowed
            assert np.allclose(counts / 20_000, 1 / len(allowed), atol=0.02)

    def test_epsilon_is_the_share_of_random_actions(self) -> None:
        case = Native("discrete")
        actor = QActor(case.layout, case.online_flat)
        obs = np.zeros((20_000, 6), np.float32)
        best = actor.act(obs[:1])[0]
        others = np.mean(actor.explore(obs, epsilon=0.3, draw=(1, 2)) != best)
        assert abs(others - 0.3 * 4 / 5) < 0.02

    def test_draws_are_a_function_of_seed_and_call(self) -> None:
        case = Native("discrete", n_rows=50)
        actor = QActor(case.layout, case.online_flat)
        obs = case.batch.obs
        one, same, other, another = (
            actor.explore(obs, epsilon=1.0, draw=draw) for draw in ((1, 2), (1, 2), (1, 3), (2, 2))
        )
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)
        assert not np.array_equal(one, another)

    def test_bad_input(self) -> None:
        actor = QActor(Native().layout, Native().online_flat)
        with pytest.raises(ValueError, match=r"obs must have shape \(n, 6\), got \(2, 5\)"):
            actor.act(np.zeros((2, 5), "f"))
        with pytest.raises(ValueError, match=r"allowed must have shape \(2, 5\), got \(1, 5\)"):
            actor.act(np.zeros((2, 6), "f"), np.ones((1, 5), bool))
