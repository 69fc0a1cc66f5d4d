"""Gradients of known policies without autograd."""

from __future__ import annotations

from sharpwave.nn.by_hand.gradient import ByHand
from sharpwave.nn.by_hand.q_learning import QByHand
from sharpwave.nn.by_hand.replay import SACByHand, TD3ByHand

__all__ = ["ByHand", "QByHand", "SACByHand", "TD3ByHand"]
