"""Gradients of known policies without autograd."""

from __future__ import annotations

from sharpwave.nn.by_hand.gradient import ByHand

__all__ = ["ByHand"]
