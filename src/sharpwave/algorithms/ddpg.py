"""Deep Deterministic Policy Gradient (Lillicrap et al., 2015, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.td3 import TD3, TD3Config


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(TD3Config):
    """Options of DDPG."""

    n_critics: int = 1
    """Number of critics; targets are their minimum."""
    policy_delay: int = 1
    """Gradient steps of the critics for each one of the actor and all target networks."""
    target_noise: float = 0.0
    """Standard deviation of the noise on the target actor's actions (target smoothing)."""


class DDPG(OnlineAgent):
    r"""DDPG: deterministic policy gradient, TD3 with one critic and no delay.

        y = r + γ Q̄(s', μ̄(s')),   L_Q = mean((Q(s, a) − y)²),   L_μ = −mean(Q(s, μ(s)))

    Args:
        actor: As for `TD3`.
        critic: A module `critic(obs, actions) -> values` [B, 1].

    Example:
        >>> ddpg = DDPG("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = ddpg.train(200)
        >>> ddpg.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "ddpg"
    Config = DDPGConfig
    Learner = TD3.Learner
    Native = TD3.Native
    Loop = TD3.Loop
    takes = TD3.takes
