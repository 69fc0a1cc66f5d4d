"""Configurations, with rlox's defaults where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sharpwave.algorithms import (
    a2c,
    bc,
    cql,
    dqn,
    dreamer,
    hybrid_ppo,
    impala,
    iql,
    mappo,
    ppo,
    sac,
    td3,
    td3_bc,
)
from sharpwave.compat.rlox.training_config import TrainingConfig
from sharpwave.config.config import Config
from sharpwave.config.network import Hidden
from sharpwave.config.schedules import RateLike, ScheduleLike

__all__ = [
    "A2CConfig",
    "BCConfig",
    "CQLConfig",
    "DQNConfig",
    "DreamerV3Config",
    "HybridPPOConfig",
    "IMPALAConfig",
    "IQLConfig",
    "MAPPOConfig",
    "PPOConfig",
    "SACConfig",
    "TD3BCConfig",
    "TD3Config",
    "TrainingConfig",
]

OF_THE_SPACES = ("latent_dim", "obs_dim", "n_actions")
"""Options of DreamerV3 that the spaces of the environment decide."""


@dataclass(frozen=True, kw_only=True)
class _Seeded(Config):
    seed: int | None = 42
    """Seed of weights, actions and environments."""


@dataclass(frozen=True, kw_only=True)
class A2CConfig(_Seeded, a2c.A2CConfig):
    """Options of A2C."""


@dataclass(frozen=True, kw_only=True)
class PPOConfig(_Seeded, ppo.PPOConfig):
    """Options of PPO, with clipped values."""

    clip_vloss: bool = True
    """Clip the value loss: the change of values is clipped to `clip_eps` too."""


@dataclass(frozen=True, kw_only=True)
class HybridPPOConfig(_Seeded, hybrid_ppo.HybridPPOConfig):
    """Options of HybridPPO, with clipped values and one number of hidden units."""

    clip_vloss: bool = True
    """Clip the value loss: the change of values is clipped to `clip_eps` too."""
    hidden: Hidden = 64  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(_Seeded, impala.IMPALAConfig):
    """Options of IMPALA, with short unrolls of few environments and a constant learning rate."""

    n_envs: int = 2
    """Environments of each actor."""
    n_steps: int = 32
    """Steps of each environment in an unroll."""
    learning_rate: ScheduleLike = 5e-4
    """Learning rate; a schedule follows the progress of the run."""
    anneal_lr: bool = False
    """Anneal a constant learning rate linearly to 0 over the run."""
    max_grad_norm: float = 40.0
    """Maximum norm of the gradient; larger gradients are scaled down."""


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(_Seeded, mappo.MAPPOConfig):
    """Options of MAPPO: a policy for each agent, paid with the mean over agents."""

    n_envs: int = 4
    """Number of environments."""
    n_steps: int = 64
    """Steps of each environment in a rollout."""
    n_epochs: int = 4
    """Passes over each rollout."""
    batch_size: int | None = 128
    """Steps of an agent in a minibatch; None divides a rollout into `n_minibatches`."""
    learning_rate: RateLike = 2.5e-4
    """Learning rate; a schedule follows the progress of the run."""
    vf_coef: float = 0.5
    """Coefficient of the value loss."""
    max_grad_norm: float = 0.5
    """Maximum norm of the gradient; larger gradients are scaled down."""
    clip_vloss: bool = False
    """Clip the value loss: the change of values is clipped to `clip_eps` too."""
    share_policy: bool = False
    """Agents of a group share networks; otherwise every agent has its own."""
    value_norm: bool = False
    """Normalize the returns that critics learn by their running mean and standard deviation."""
    value_loss: Literal["huber", "mse"] = "mse"
    """Value loss: the Huber loss with threshold `huber_delta`, or the mean squared error."""
    normalize_advantages: Literal["rollout", "minibatch", "none"] = "minibatch"
    """Normalize the advantages of each rollout, or of each minibatch, to mean 0 and deviation 1."""
    team_reward: bool = True
    """Reward every agent with the mean reward of its group, or of the agents that would be one with
    it if policies were shared; otherwise with its own."""


@dataclass(frozen=True, kw_only=True)
class _OneWidth(_Seeded):
    hidden: Hidden = 256  # type: ignore[assignment]
    """Width of the two hidden layers, or the width of each."""


@dataclass(frozen=True, kw_only=True)
class DQNConfig(_OneWidth, dqn.DQNConfig):
    """Options of DQN, with the square of the error."""

    loss: Literal["huber", "mse"] = "mse"
    """Loss function of the TD error."""


@dataclass(frozen=True, kw_only=True)
class SACConfig(_OneWidth, sac.SACConfig):
    """Options of SAC."""


@dataclass(frozen=True, kw_only=True)
class TD3Config(_OneWidth, td3.TD3Config):
    """Options of TD3."""


@dataclass(frozen=True, kw_only=True)
class TD3BCConfig(_OneWidth, td3_bc.TD3BCConfig):
    """Options of TD3+BC, with actions between -1 and 1."""

    act_high: float | tuple[float, ...] | None = 1.0
    """Highest action, of all dimensions or of each; the lowest is its negative."""


@dataclass(frozen=True, kw_only=True)
class IQLConfig(_OneWidth, iql.IQLConfig):
    """Options of IQL."""


@dataclass(frozen=True, kw_only=True)
class CQLConfig(_OneWidth, cql.CQLConfig):
    """Options of CQL."""


@dataclass(frozen=True, kw_only=True)
class DreamerV3Config(_Seeded, dreamer.DreamerV3Config):
    """Options of DreamerV3, with small sizes and short imagination.

    `kl_balance` b weighs the dynamics loss by b and the representation loss by 1 - b. `latent_dim`,
    `obs_dim` and `n_actions` are ignored: the environment has them.
    """

    aliases: ClassVar[dict[str, str]] = {
        **dreamer.DreamerV3Config.aliases,
        "imagination_horizon": "imagination",
        "horizon": "imagination",
        "lambda_": "lam",
        "seq_len": "sequence_length",
        "deter_dim": "deter",
        "stoch_dim": "latents",
        "stoch_classes": "classes",
    }

    imagination: int = 5
    """Steps that are imagined from every state."""
    imag_last: int | None = None
    """Imagine only from the last so many states of each sequence; None for all."""
    buffer_size: int = 10_000
    """Steps that the buffer keeps."""
    batch_size: int = 32
    """Sequences of a gradient step."""
    train_ratio: float | None = 128.0
    """Steps that are replayed per environment step: with sequences of 32 x 16, 128 is a gradient
    step every 4 environment steps."""
    learning_rate: ScheduleLike = 3e-4
    """Learning rate; a schedule follows the progress of the run."""
    gamma: float = 0.99
    """Discount of future rewards."""
    deter: int = 64
    """Size of the deterministic state."""
    dynamics_coef: float = 0.8
    """Weight of the divergence that trains the prior."""
    representation_coef: float = 1.0 - 0.8
    """Weight of the divergence that trains the posterior."""

    @classmethod
    def _known(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        known = {name: x for name, x in options.items() if name not in OF_THE_SPACES}
        balance = known.pop("kl_balance", None)
        known = super()._known(known)
        if balance is None:
            return known
        if not 0.0 <= float(balance) <= 1.0:
            raise ValueError(f"kl_balance must be between 0 and 1, got {balance}")
        kind = type(balance) if isinstance(balance, str) else float
        both = {"dynamics_coef": kind(balance), "representation_coef": kind(1.0 - float(balance))}
        twice = sorted(both.keys() & known.keys())
        if twice:
            raise TypeError(f"option {twice[0]!r} of {cls.__name__} is given twice")
        return {**known, **both}


@dataclass(frozen=True, kw_only=True)
class BCConfig(_OneWidth, bc.BCConfig):
    """Options of BC, with continuous actions."""

    continuous: bool | None = True
    """Treat actions as continuous or as discrete."""
