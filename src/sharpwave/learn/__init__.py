"""Compiled twins of the algorithms: their updates in native code, on arrays.

Nothing here imports torch.
"""

from sharpwave.learn.actor_critic import (
    DeterministicActor,
    SACLearner,
    SquashedActor,
    TD3Learner,
)
from sharpwave.learn.draws import Draws
from sharpwave.learn.features import Features, features_of
from sharpwave.learn.init import fan_in_uniform, orthogonal
from sharpwave.learn.layout import PolicyLayout, why_not_native
from sharpwave.learn.optimizers import Adam, NativeOptimizer, RMSprop
from sharpwave.learn.parameters import FlatArrays
from sharpwave.learn.policy import PolicyLearner
from sharpwave.learn.q_learning import QActor, QLearner
from sharpwave.learn.replay_layout import (
    ActorLayout,
    CriticsLayout,
    QLayout,
    actor_critic_layouts,
)

__all__ = [
    "ActorLayout",
    "Adam",
    "CriticsLayout",
    "DeterministicActor",
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
    "SACLearner",
    "SquashedActor",
    "TD3Learner",
    "actor_critic_layouts",
    "fan_in_uniform",
    "features_of",
    "orthogonal",
    "why_not_native",
]
