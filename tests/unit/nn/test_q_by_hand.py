"""Gradients of Q-learning by hand are those of autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave import losses
from sharpwave.nn import FlatParameters, QByHand, QNetwork

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5),
    "two actions": spaces.Discrete(2),
    "multi discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi binary": spaces.MultiBinary(3),
}


class Case:
    """An online and a target network away from their start, and a batch."""

    def __init__(
        self,
        actions: str = "discrete",
        *,
        n_rows: int = 32,
        masks: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        options = {"hidden": (16, 12), **options}
        self.online = QNetwork(
            spaces.Box(-np.inf, np.inf, (2, 3)),
            ACTIONS[actions],
            generator=np.random.default_rng(0),
            **options,
        )
        self.target = copy.deepcopy(self.online)
        self.flat, target = FlatParameters(self.online), FlatParameters(self.target)
        for flat in (self.flat, target):
            flat.data.add_(0.3 * torch.randn(len(flat.data), generator=generator))
        self.flat.grad.fill_(float("nan"))  # what is left over from before must not matter
        branches = self.online.branches
        self.obs = torch.randn(n_rows, 2, 3, generator=generator)
        self.next_obs = torch.randn(n_rows, 2, 3, generator=generator)
        self.actions = branches.greedy(torch.rand(n_rows, branches.n, generator=generator))
        self.rewards = torch.randn(n_rows, generator=generator)
        self.discounts = 0.9 * (torch.rand(n_rows, generator=generator) < 0.7).float()
        self.weights = torch.rand(n_rows, generator=generator) if weights else None
        self.next_masks = None
        if masks:
            self.next_masks = torch.rand(n_rows, branches.n_masks, generator=generator) < 0.5
            self.next_masks[:, branches.starts % branches.n_masks] = True

    def by_hand(self, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
        metrics, errors = QByHand(self.online, self.target).gradient(
            self.obs,
            self.actions,
            self.rewards,
            self.next_obs,
            self.discounts,
            weights=self.weights,
            next_masks=self.next_masks,
            **options,
        )
        return self.flat.grad.clone(), metrics, errors

    def by_autograd(self, *, double: bool, huber: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient, metrics and errors in float64."""
        online, target = copy.deepcopy(self.online).double(), copy.deepcopy(self.target).double()
        online.features = target.features = torch.nn.Flatten()  # type: ignore[assignment]
        online.zero_grad()
        branches = online.branches
        obs, next_obs = self.obs.double(), self.next_obs.double()
        with torch.no_grad():
            next_q = target(next_obs)
            best = branches.greedy(online(next_obs) if double else next_q, self.next_masks)
            targets = self.rewards + self.discounts * branches.mean_of(next_q, best)
        values = branches.mean_of(online(obs), self.actions)
        errors = values - targets
        rows = losses.huber(errors) if huber else errors.square()
        loss = losses.weighted_mean(rows, self.weights)
        loss.backward()
        grads = [p.grad.flatten() for p in online.parameters() if p.grad is not None]
        metrics = torch.stack((loss, values.mean(), errors.abs().mean()))
        return torch.cat(grads), metrics.detach(), errors.detach()

    def check(self, *, double: bool = True, huber: bool = True) -> None:
        found = self.by_hand(double=double, huber=huber)
        expected = self.by_autograd(double=double, huber=huber)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("actions", ACTIONS)
class TestEveryKind:
    @pytest.mark.parametrize("double", [False, True])
    @pytest.mark.parametrize("huber", [False, True])
    def test_of_the_loss(self, actions: str, dueling: bool, double: bool, huber: bool) -> None:
        Case(actions, dueling=dueling).check(double=double, huber=huber)

    @pytest.mark.parametrize("double", [False, True])
    def test_with_masks(self, actions: str, dueling: bool, double: bool) -> None:
        Case(actions, dueling=dueling, masks=True).check(double=double)

    @pytest.mark.parametrize("huber", [False, True])
    def test_with_weights(self, actions: str, dueling: bool, huber: bool) -> None:
        Case(actions, dueling=dueling, weights=True).check(huber=huber)

    @pytest.mark.parametrize("hidden", [(), (8,), (9, 8, 7)])
    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    def test_of_every_depth(
        self, actions: str, dueling: bool, hidden: tuple[int, ...], activation: str
    ) -> None:
        Case(actions, dueling=dueling, hidden=hidden, activation=activation).check()


def check_errors(case: Case, errors: Tensor) -> None:
    expected = case.by_autograd(double=True, huber=True)[2].float()
    torch.testing.assert_close(errors, expected, rtol=1e-4, atol=1e-5)


def test_batches_of_different_sizes_one_after_the_other() -> None:
    case, small = Case(n_rows=16), Case(n_rows=4)
    by_hand = QByHand(case.online, case.target)
    for one in (case, small, case):
        _, errors = by_hand.gradient(one.obs, one.actions, one.rewards, one.next_obs, one.discounts)
        check_errors(one, errors)


def test_later_changes_of_the_parameters_count() -> None:
    case = Case()
    by_hand = QByHand(case.online, case.target)
    arguments = (case.obs, case.actions, case.rewards, case.next_obs, case.discounts)
    by_hand.gradient(*arguments)
    case.flat.data.mul_(2.0)
    _, errors = by_hand.gradient(*arguments)
    check_errors(case, errors)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"noisy": True}, "Linear layers"),
        ({"n_atoms": 3}, "distributions"),
        ({"activation": "silu"}, "Tanh and ReLU"),
    ],
    ids=str,
)
def test_other_networks_are_left_to_autograd(options: dict[str, Any], reason: str) -> None:
    case = Case(**options)
    assert QByHand.of(case.online, case.target) is None
    with pytest.raises(TypeError, match=reason):
        QByHand(case.online, case.target)


def test_images_are_left_to_autograd() -> None:
    images = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    net = QNetwork(images, spaces.Discrete(2), hidden=(), generator=np.random.default_rng(0))
    assert QByHand.why_not(net) == "the network learns its features"
