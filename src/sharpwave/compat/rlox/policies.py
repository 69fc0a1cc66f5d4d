"""Policy modules under rlox's names."""

from sharpwave.nn import ContinuousPolicy, DiscretePolicy

__all__ = ["ContinuousPolicy", "DiscretePolicy"]
