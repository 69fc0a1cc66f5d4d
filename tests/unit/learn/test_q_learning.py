"""Steps of Q-learning in native code are those of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sharpwave import nn
from sharpwave.learn import QLearner
from sharpwave.train.replay import ReplayBatch
from tests.unit.nn.q_cases import ACTIONS, Case


class Native(Case):
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
        self.optimizer = nn.Adam(self.flat, lr=1e-2, eps=1e-8)
        self.flat_target = nn.FlatParameters(self.target)
        self.learner = QLearner(
            6,
            hidden,
            activation,
            self.online.branches.sizes,
            self.optimizer.memory(),
            self.flat_target.block,
            dueling=dueling,
            threads=threads,
        )

    def native(self, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        metrics, errors = self.learner.gradient(self.batch, **options)
        return self.flat.grad.clone(), torch.from_numpy(metrics), torch.from_numpy(errors)

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
    @pytest.mark.parametrize("activation", ["relu", "tanh"])
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
        assert torch.equal(case.flat.data, cases[0].flat.data)
        assert torch.equal(case.flat_target.data, cases[0].flat_target.data)


@pytest.mark.parametrize("tau", [1.0, 0.05])
@pytest.mark.parametrize("max_grad_norm", [np.inf, 0.1])
def test_50_steps_are_those_of_torch(tau: float, max_grad_norm: float) -> None:
    native, torchs = Native(hidden=(32, 32)), Native(hidden=(32, 32))
    by_hand = nn.QByHand(torchs.online, torchs.target)
    for i in range(50):
        drawn = np.random.default_rng(i).integers(0, 32, 16)
        batch = rows(native.batch, drawn)
        metrics, errors = native.learner.step(batch, max_grad_norm=max_grad_norm, tau=tau)
        torch_metrics, torch_errors = by_hand.gradient(
            batch.obs, batch.actions, batch.rewards, batch.next_obs, batch.discounts
        )
        norm = torchs.flat.clip_grad_norm(max_grad_norm)
        torchs.optimizer.step()
        if tau < 1:
            torchs.flat_target.data.lerp_(torchs.flat.data, tau)
        expected = [*torch_metrics.tolist(), norm.item()]
        np.testing.assert_allclose(metrics, expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(errors, torch_errors, rtol=1e-3, atol=1e-4)
    for one, other in ((native.flat, torchs.flat), (native.flat_target, torchs.flat_target)):
        torch.testing.assert_close(one.data, other.data, rtol=1e-4, atol=1e-4)
    for name, tensor in native.optimizer.arrays().items():
        torch.testing.assert_close(tensor, torchs.optimizer.arrays()[name], rtol=1e-3, atol=1e-4)


def rows(batch: ReplayBatch, drawn: Any) -> ReplayBatch:
    """Some rows of a batch."""
    return ReplayBatch(
        batch.obs[drawn],
        batch.actions[drawn],
        batch.rewards[drawn],
        batch.next_obs[drawn],
        batch.discounts[drawn],
    )


def test_the_learning_rate_is_the_optimisers() -> None:
    case = Native()
    before = case.flat.data.clone()
    case.optimizer.set_lr(0.0)
    case.learner.step(case.batch)
    assert torch.equal(case.flat.data, before)
    case.optimizer.set_lr(1e-3)
    case.learner.step(case.batch)
    assert not torch.equal(case.flat.data, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": np.zeros((32, 5), "f")}, r"obs must have shape \(n, 6\), got \(32, 5\)"),
        ({"obs": np.zeros((0, 6), "f")}, "obs must have rows, got none"),
        ({"next_obs": np.zeros((31, 6), "f")}, r"next_obs must have shape \(32, 6\), got \(31, 6\)"),
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
    ids=str,
)
def test_bad_batches_change_nothing(change: dict[str, Any], message: str) -> None:
    case = Native()
    batch = case.batch
    for name, value in change.items():
        setattr(batch, name, value)
    before = case.flat.data.clone()
    with pytest.raises(ValueError, match=message):
        case.learner.step(batch)
    assert torch.equal(case.flat.data, before)
    assert case.optimizer.arrays()["steps"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_inputs": 0}, "n_inputs must hold sizes from 1"),
        ({"hidden": (0,)}, "hidden must hold sizes from 1"),
        ({"choices": ()}, "choices must not be empty"),
        ({"activation": "elu"}, "activation must be 'tanh' or 'relu', got 'elu'"),
        ({"hidden": (3,)}, r"online data must have shape \(\d+,\), got"),
        ({"target": np.zeros(3, "f")}, r"target must have shape \(\d+,\), got \(3,\)"),
    ],
    ids=str,
)
def test_bad_construction(change: dict[str, Any], message: str) -> None:
    case = Native()
    options = {
        "n_inputs": 6,
        "hidden": (16, 12),
        "activation": "relu",
        "choices": (5,),
        "online": case.optimizer.memory(),
        "target": case.flat_target.block,
    }
    with pytest.raises(ValueError, match=message):
        QLearner(**{**options, **change})  # type: ignore[arg-type]
