"""Gradients of Q-learning by hand are those of autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave.nn import QByHand, QNetwork
from tests.unit.nn.q_cases import ACTIONS, Case


class ByHand(Case):
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
        ByHand(actions, dueling=dueling).check(double=double, huber=huber)

    @pytest.mark.parametrize("double", [False, True])
    def test_with_masks(self, actions: str, dueling: bool, double: bool) -> None:
        ByHand(actions, dueling=dueling, masks=True).check(double=double)

    @pytest.mark.parametrize("huber", [False, True])
    def test_with_weights(self, actions: str, dueling: bool, huber: bool) -> None:
        ByHand(actions, dueling=dueling, weights=True).check(huber=huber)

    @pytest.mark.parametrize("hidden", [(), (8,), (9, 8, 7)])
    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    def test_of_every_depth(
        self, actions: str, dueling: bool, hidden: tuple[int, ...], activation: str
    ) -> None:
        ByHand(actions, dueling=dueling, hidden=hidden, activation=activation).check()


def check_errors(case: ByHand, errors: Tensor) -> None:
    expected = case.by_autograd(double=True, huber=True)[2].float()
    torch.testing.assert_close(errors, expected, rtol=1e-4, atol=1e-5)


def test_batches_of_different_sizes_one_after_the_other() -> None:
    case, small = ByHand(n_rows=16), ByHand(n_rows=4)
    by_hand = QByHand(case.online, case.target)
    for one in (case, small, case):
        _, errors = by_hand.gradient(one.obs, one.actions, one.rewards, one.next_obs, one.discounts)
        check_errors(one, errors)


def test_later_changes_of_the_parameters_count() -> None:
    case = ByHand()
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
    case = ByHand(**options)
    assert QByHand.of(case.online, case.target) is None
    with pytest.raises(TypeError, match=reason):
        QByHand(case.online, case.target)


def test_images_are_left_to_autograd() -> None:
    images = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    net = QNetwork(images, spaces.Discrete(2), hidden=(), generator=np.random.default_rng(0))
    assert QByHand.why_not(net) == "the network learns its features"
