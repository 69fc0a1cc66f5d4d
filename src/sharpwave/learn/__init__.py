"""Compiled twins of the algorithms: their updates in native code, on arrays.

Nothing here imports torch.
"""

from sharpwave.learn.draws import Draws
from sharpwave.learn.features import features_of
from sharpwave.learn.init import fan_in_uniform, orthogonal
from sharpwave.learn.layout import PolicyLayout, why_not_native
from sharpwave.learn.optimizers import Adam, NativeOptimizer, RMSprop
from sharpwave.learn.parameters import FlatArrays
from sharpwave.learn.policy import PolicyLearner
from sharpwave.learn.q_learning import QLearner

__all__ = [
    "Adam",
    "Draws",
    "FlatArrays",
    "NativeOptimizer",
    "PolicyLayout",
    "PolicyLearner",
    "QLearner",
    "RMSprop",
    "fan_in_uniform",
    "features_of",
    "orthogonal",
    "why_not_native",
]
