"""Ready-made policy modules with the methods that custom ones offer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sharpwave.nn.distributions import Categorical, DiagonalGaussian, Distribution
from sharpwave.nn.mlp import make_mlp

__all__ = ["ContinuousPolicy", "DiscretePolicy"]


class _Policy(nn.Module):
    """Two networks with two hidden tanh layers each, and a distribution on top of the first."""

    distribution: Distribution[Any]

    def __init__(self, obs_dim: int, outputs: int, hidden: int, seed: int | None) -> None:
        super().__init__()
        if seed is None:
            seed = int(torch.randint(2**63 - 1, ()))
        generator = np.random.default_rng(seed)
        self.actor = make_mlp(obs_dim, (hidden, hidden), outputs, "tanh", generator, head_gain=0.01)
        self.critic = make_mlp(obs_dim, (hidden, hidden), 1, "tanh", generator, head_gain=1.0)

    def _params(self, obs: Tensor) -> Any:
        return self.actor(obs)

    def get_action_and_logprob(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions drawn from torch's global generator and their log-probabilities [B]."""
        params = self._params(obs)
        with torch.no_grad():
            actions = self.distribution.sample(params)
        return actions, self.distribution.log_prob(params, actions)

    def get_value(self, obs: Tensor) -> Tensor:
        """Values [B] of observations [B, obs_dim]."""
        value: Tensor = self.critic(obs)
        return value.squeeze(-1)

    def get_logprob_and_entropy(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B] of actions and entropies [B] of the policy."""
        return self.distribution.log_prob_and_entropy(self._params(obs), actions)

    def get_action_value(self, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Actions, their log-probabilities [B] and values [B]."""
        actions, log_probs = self.get_action_and_logprob(obs)
        return actions, log_probs, self.get_value(obs)


class DiscretePolicy(_Policy):
    """A categorical policy over `n_actions` discrete actions, and a value function.

    Args:
        obs_dim: Size of an observation.
        n_actions: Number of actions.
        hidden: Size of each of the two hidden layers.
        seed: Random seed of the weights; None draws one from torch's global generator.

    Attributes:
        actor: Observations [B, obs_dim] to logits [B, n_actions].
        critic: Observations [B, obs_dim] to values [B, 1].

    Example:
        >>> policy = DiscretePolicy(4, 2, seed=0)
        >>> actions, log_probs = policy.get_action_and_logprob(torch.zeros(3, 4))
        >>> actions.shape, log_probs.shape
        (torch.Size([3]), torch.Size([3]))
    """

    def __init__(
        self, obs_dim: int, n_actions: int, hidden: int = 64, *, seed: int | None = None
    ) -> None:
        super().__init__(obs_dim, n_actions, hidden, seed)
        self.distribution = Categorical(n_actions)


class ContinuousPolicy(_Policy):
    """A Gaussian policy over continuous actions, and a value function.

    Args:
        obs_dim: Size of an observation.
        act_dim: Size of an action.
        hidden: Size of each of the two hidden layers.
        seed: Random seed of the weights; None draws one from torch's global generator.

    Attributes:
        actor: Observations [B, obs_dim] to means [B, act_dim].
        critic: Observations [B, obs_dim] to values [B, 1].
        log_std: [act_dim] logarithm of the standard deviations, the same for all observations.

    Example:
        >>> policy = ContinuousPolicy(3, 1, seed=0)
        >>> policy.get_action_and_logprob(torch.zeros(5, 3))[0].shape
        torch.Size([5, 1])
    """

    def __init__(
        self, obs_dim: int, act_dim: int, hidden: int = 64, *, seed: int | None = None
    ) -> None:
        super().__init__(obs_dim, act_dim, hidden, seed)
        self.log_std = nn.Parameter(torch.zeros(act_dim))
        self.distribution = DiagonalGaussian(act_dim)

    def _params(self, obs: Tensor) -> Any:
        return self.actor(obs), self.log_std
