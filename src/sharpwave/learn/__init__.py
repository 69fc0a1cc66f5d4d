"""Compiled twins of the algorithms: their updates in native code, on arrays.

Nothing here imports torch.
"""

from sharpwave.learn.layout import PolicyLayout, why_not_native
from sharpwave.learn.memory import Optimized
from sharpwave.learn.policy import PolicyLearner
from sharpwave.learn.q_learning import QLearner

__all__ = ["Optimized", "PolicyLayout", "PolicyLearner", "QLearner", "why_not_native"]
