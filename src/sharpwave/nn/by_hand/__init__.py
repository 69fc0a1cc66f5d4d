"""Gradients of known policies without autograd."""

from __future__ import annotations

from sharpwave.nn.by_hand.gradient import ByHand
from sharpwave.nn.by_hand.q_learning import QByHand

__all__ = ["ByHand", "QByHand"]
