"""Compiled twins of learners, on arrays, and what they are made of.

Nothing here imports torch.
"""

from sharpwave.layouts.features import Features, features_of
from sharpwave.layouts.init import fan_in_uniform, orthogonal
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.policy import PolicyLayout, why_not_native
from sharpwave.layouts.replay import (
    ActorLayout,
    CriticsLayout,
    QLayout,
    actor_critic_layouts,
)
from sharpwave.learners.native.actor_critic import (
    DeterministicActor,
    SACSteps,
    SquashedActor,
    TD3Steps,
)
from sharpwave.learners.native.dqn import NativeDQNLearner, QActor, QSteps
from sharpwave.learners.native.groups import NativeMAPPOLearner
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam, NativeOptimizer, RMSprop
from sharpwave.learners.native.policy import PolicySteps
from sharpwave.learners.native.rollouts import (
    NativeA2CLearner,
    NativeAPPOLearner,
    NativeIMPALALearner,
    NativePPOLearner,
)
from sharpwave.learners.native.sac import NativeSACLearner
from sharpwave.learners.native.td3 import NativeTD3BCLearner, NativeTD3Learner

__all__ = [
    "ActorLayout",
    "Adam",
    "CriticsLayout",
    "DeterministicActor",
    "Features",
    "FlatArrays",
    "NativeA2CLearner",
    "NativeAPPOLearner",
    "NativeDQNLearner",
    "NativeIMPALALearner",
    "NativeLearner",
    "NativeMAPPOLearner",
    "NativeOptimizer",
    "NativePPOLearner",
    "NativeSACLearner",
    "NativeTD3BCLearner",
    "NativeTD3Learner",
    "PolicyLayout",
    "PolicySteps",
    "QActor",
    "QLayout",
    "QSteps",
    "RMSprop",
    "SACSteps",
    "SquashedActor",
    "TD3Steps",
    "actor_critic_layouts",
    "fan_in_uniform",
    "features_of",
    "orthogonal",
    "why_not_native",
]
