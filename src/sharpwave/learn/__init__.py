"""Compiled twins of the algorithms: their updates in native code, on arrays.

Nothing here imports torch.
"""

from sharpwave.learn.draws import Draws
from sharpwave.learn.features import Features, features_of
from sharpwave.learn.init import fan_in_uniform, orthogonal
from sharpwave.learn.layout import PolicyLayout, why_not_native
from sharpwave.learn.optimizers import Adam, NativeOptimizer, RMSprop
from sharpwave.learn.parameters import FlatArrays
from sharpwave.learn.policy import PolicyLearner
from sharpwave.learn.q_learning import QActor, QLearner
from sharpwave.learn.replay_layout import ActorLayout, CriticsLayout, QLayout

__all__ = [
    "ActorLayout",
    "Adam",
    "CriticsLayout",
    "Draws",
    "Features",
    "FlatArrays",
    "NativeOptimizer",
    "PolicyLayout",
    "PolicyLearner",
    "QActor",
    "QLayout",
    "QLearner",
    "RMSprop",
    "fan_in_uniform",
    "features_of",
    "orthogonal",
    "why_not_native",
]
