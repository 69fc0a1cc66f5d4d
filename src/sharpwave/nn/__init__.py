"""Networks and distributions.

Belongs here: modules, distributions and optimizers; no loss, no environment.
"""

from sharpwave.layouts.init import fan_in_uniform, orthogonal
from sharpwave.nn.actor_critic import Acted, ActorCritic, Evaluated
from sharpwave.nn.actors import CategoricalActor, DeterministicActor, GaussianActor, SquashedActor
from sharpwave.nn.batch_renorm import BatchRenorm
from sharpwave.nn.critics import Critics, ValueFunction
from sharpwave.nn.custom import CustomPolicy
from sharpwave.nn.custom_replay import (
    CustomCritics,
    CustomDeterministicActor,
    CustomQNetwork,
    CustomSquashedActor,
)
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
from sharpwave.nn.fused import fused_mlp
from sharpwave.nn.gsde import SmoothNoise
from sharpwave.nn.layers import layers_of, recomputing
from sharpwave.nn.mixers import JointFeatures, JointState, MonotonicMixer, SumMixer
from sharpwave.nn.mlp import MLP, initialize, initialize_uniform, make_mlp
from sharpwave.nn.optimizers import Adam, FlatOptimizer, LaProp, RMSprop, descend
from sharpwave.nn.policies import ContinuousPolicy, DiscretePolicy
from sharpwave.nn.q_networks import Branches, NoisyLinear, QNetwork
from sharpwave.nn.random_network import RandomNetwork
from sharpwave.nn.recurrent_q import RecurrentQNetwork
from sharpwave.nn.return_scale import ReturnScale
from sharpwave.nn.running_norm import RunningNorm
from sharpwave.nn.stacked import Scalar, StackedLinear, StackedMLP
from sharpwave.nn.team_q import TeamQNetwork
from sharpwave.nn.transformer import Transformer
from sharpwave.nn.value_norm import ValueNorm
from sharpwave.nn.world_actor import WorldActor
from sharpwave.nn.world_codecs import Decoder, Encoder
from sharpwave.nn.world_layers import Head
from sharpwave.nn.world_model import RSSM, Latent, Observed, WorldModel

__all__ = [
    "MLP",
    "RSSM",
    "Acted",
    "ActorCritic",
    "Adam",
    "BatchRenorm",
    "Bernoulli",
    "Branches",
    "Categorical",
    "CategoricalActor",
    "ContinuousPolicy",
    "Critics",
    "CustomCritics",
    "CustomDeterministicActor",
    "CustomPolicy",
    "CustomQNetwork",
    "CustomSquashedActor",
    "Decoder",
    "DeterministicActor",
    "DiagonalGaussian",
    "DiscretePolicy",
    "Distribution",
    "Encoder",
    "Evaluated",
    "FlatOptimizer",
    "FlatParameters",
    "GaussianActor",
    "Head",
    "JointFeatures",
    "JointState",
    "LaProp",
    "Latent",
    "MonotonicMixer",
    "MultiCategorical",
    "NoisyLinear",
    "Observed",
    "QNetwork",
    "RMSprop",
    "RandomNetwork",
    "RecurrentQNetwork",
    "ReturnScale",
    "RunningNorm",
    "Scalar",
    "SmoothNoise",
    "SquashedActor",
    "SquashedGaussian",
    "StackedLinear",
    "StackedMLP",
    "SumMixer",
    "TeamQNetwork",
    "Transformer",
    "ValueFunction",
    "ValueNorm",
    "WorldActor",
    "WorldModel",
    "descend",
    "fan_in_uniform",
    "fused_mlp",
    "initialize",
    "initialize_uniform",
    "layers_of",
    "make_distribution",
    "make_features",
    "make_mlp",
    "orthogonal",
    "recomputing",
]
