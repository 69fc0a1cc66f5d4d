"""Networks and distributions."""

from sharpwave.nn.actor_critic import Acted, ActorCritic, Evaluated
from sharpwave.nn.by_hand import ByHand
from sharpwave.nn.custom import CustomPolicy
from sharpwave.nn.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    SquashedGaussian,
    make_distribution,
)
from sharpwave.nn.features import make_features
from sharpwave.nn.flat import FlatParameters
from sharpwave.nn.init import orthogonal
from sharpwave.nn.mlp import MLP, initialise, make_mlp
from sharpwave.nn.numpy_policy import NumpyPolicy
from sharpwave.nn.optimizers import Adam, FlatOptimizer, RMSprop
from sharpwave.nn.policies import ContinuousPolicy, DiscretePolicy

__all__ = [
    "MLP",
    "Acted",
    "ActorCritic",
    "Adam",
    "Bernoulli",
    "ByHand",
    "Categorical",
    "ContinuousPolicy",
    "CustomPolicy",
    "DiagonalGaussian",
    "DiscretePolicy",
    "Distribution",
    "Evaluated",
    "FlatOptimizer",
    "FlatParameters",
    "MultiCategorical",
    "NumpyPolicy",
    "RMSprop",
    "SquashedGaussian",
    "initialise",
    "make_distribution",
    "make_features",
    "make_mlp",
    "orthogonal",
]
