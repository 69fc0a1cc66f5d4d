"""Callbacks: what happens beside the training of a run."""

from sharpwave.train.callbacks.base import Callback, CallbackList

__all__ = ["Callback", "CallbackList"]
