"""Compiled twins of the algorithms: their updates in native code, on arrays.

Nothing here imports torch.
"""

from sharpwave.learn.layout import PolicyLayout, why_not_native
from sharpwave.learn.policy import PolicyLearner

__all__ = ["PolicyLayout", "PolicyLearner", "why_not_native"]
