"""Gradients of SAC and TD3, written out by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sharpwave.nn.actors import LOG_STD_RANGE, DeterministicActor, SquashedActor
from sharpwave.nn.by_hand.chain import Chain, why_not_chain
from sharpwave.nn.by_hand.stack import StackedChain, why_not_stack
from sharpwave.nn.critics import Critics
from sharpwave.nn.distributions import LOG_SQRT_2PI

__all__ = ["SACByHand", "TD3ByHand"]


class _ByHand:
    """What both have: critics and their slow copies.

    Args:
        policy: The actor.
        critics: With flat parameters.
        targets: Their slow copy.

    Raises:
        TypeError: The networks are not of the kind.
    """

    actor: type[nn.Module]

    def __init__(self, policy: Any, critics: Critics, targets: Critics) -> None:
        reason = self.why_not(policy, critics)
        if reason is not None:
            raise TypeError(f"the gradient cannot be taken by hand: {reason}")
        self.features = policy.features
        self.policy = Chain(policy.net)
        self.critics = StackedChain(critics.net)
        self.targets = StackedChain(targets.net)

    @classmethod
    def why_not(cls, policy: Any, critics: Any) -> str | None:
        """Why the gradients of these networks cannot be taken by hand; None when they can."""
        actor, critic = type(policy), type(critics)
        if actor is not cls.actor:
            return f"the actor is a {actor.__name__}, not a {cls.actor.__name__}"
        if critic is not Critics:
            return f"the critics are {critic.__name__}, not Critics"
        if any(True for module in (policy, critics) for _ in module.features.parameters()):
            return "the networks learn their features"
        if getattr(policy, "noise", None) is not None:
            return "the actor has noise of its own"
        for name, reason in (
            ("actor", why_not_chain(policy.net)),
            ("critic", why_not_stack(critics.net)),
        ):
            if reason is not None:
                return f"the {name} {reason}"
        return None

    def critic_gradient(
        self, obs: Any, actions: Tensor, targets: Tensor, weights: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Fills the gradient of the critics with that of s Σ_i mean(w (Q_i(s, a) − y)²).

        Args:
            obs: [B, ...].
            actions: [B, d].
            targets: [B] y.
            weights: [B] w, or None for ones.
            scale: s.

        Returns:
            The loss [], and the mean size of the errors of each row [B].
        """
        x = torch.cat((self.features(obs), actions), 1)
        errors = self.critics.forward(x) - targets
        slopes = (2.0 * scale / len(x)) * errors
        if weights is not None:
            slopes *= weights
        self.critics.backward(slopes)
        return 0.5 * (slopes * errors).sum(), errors.abs().mean(0)


class SACByHand(_ByHand):
    """The gradients of SAC for multi-layer perceptrons, twice as fast as by autograd.

    A step calls `sample`, `soft_targets`, `critic_gradient` and `actor_gradient` in this order.
    Gradients are overwritten, so `zero_grad` is not needed. Nothing waits for the device.

    Args:
        policy: A `SquashedActor` with flat parameters that `why_not` has nothing against.
        critics: Its critics, with flat parameters.
        targets: Their slow copy.

    Raises:
        TypeError: The networks are not of the kind.
    """

    actor = SquashedActor

    def sample(self, obs: Any, next_obs: Any, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Actions [B, d] for `obs` and their log-probabilities [B]; those for `next_obs` are kept.

        Args:
            obs: [B, ...].
            next_obs: [B, ...].
            generator: Source of the noise.
        """
        self._x, self._next_x = self.features(obs), self.features(next_obs)
        rows = len(self._x)
        output = self.policy.forward(torch.cat((self._x, self._next_x)).t())
        dim = len(output) // 2
        mean, raw_log_std = output[:dim], output[dim:]
        log_std = raw_log_std.clamp(*LOG_STD_RANGE)
        noise = output.new_empty(2 * rows, dim)
        noise[:rows].normal_(generator=generator)
        noise[rows:].normal_(generator=generator)
        spread = log_std.exp().mul_(noise.t())
        raw = mean + spread
        actions = raw.tanh()
        # log N(u) − log(1 − tanh²u), the latter without cancellation
        slope = softplus(-2.0 * raw).add_(raw).mul_(2.0)
        densities = slope.sub_(log_std).sub_(noise.t().square(), alpha=0.5)
        log_probs = densities.sum(0).sub_(dim * (LOG_SQRT_2PI + 2.0 * math.log(2.0)))
        self._actions, self._spread = actions[:, :rows], spread[:, :rows]
        self._inside = (raw_log_std == log_std)[:, :rows]
        self._log_probs, self._next_log_probs = log_probs[:rows], log_probs[rows:]
        self._next_actions = actions[:, rows:]
        return self._actions.t(), self._log_probs

    def soft_targets(self, rewards: Tensor, discounts: Tensor, alpha: Tensor) -> Tensor:
        """R + γ (min_i Q̄_i(s', a') − α log π(a'|s')), [B]."""
        x = torch.cat((self._next_x, self._next_actions.t()), 1)
        soft = self.targets.forward(x).amin(0).sub_(alpha * self._next_log_probs)
        return torch.addcmul(rewards, discounts, soft)

    def actor_gradient(self, alpha: Tensor) -> Tensor:
        """Fills the gradient of the actor with that of mean(α log π(ã|s) − min_i Q_i(s, ã)).

        Returns:
            The loss [].
        """
        actions, rows = self._actions, self._actions.shape[1]
        values = self.critics.forward(torch.cat((self._x, actions.t()), 1))
        least, which = values.min(0)
        slopes = torch.zeros_like(values).scatter_(0, which[None], -1.0 / rows)
        by_action = self.critics.input_gradient(slopes)[:, self._x.shape[1] :].t()

        # u = m + σε, a = tanh u: da/du = 1 − a², and −log(1 − a²) has the slope 2a.
        share = alpha / rows
        by_raw = torch.addcmul(by_action, by_action, actions.square(), value=-1.0)
        by_raw.addcmul_(actions, share, value=2.0)
        by_log_std = (by_raw * self._spread).sub_(share).mul_(self._inside)
        self.policy.backward(torch.cat((by_raw, by_log_std)))
        return (alpha * self._log_probs - least).mean()


class TD3ByHand(_ByHand):
    """The gradients of TD3 for multi-layer perceptrons, twice as fast as by autograd.

    Gradients are overwritten, so `zero_grad` is not needed. Nothing waits for the device.

    Args:
        policy: A `DeterministicActor` with flat parameters that `why_not` has nothing against.
        critics: Its critics, with flat parameters.
        targets: Their slow copy.
        target_policy: The slow copy of the actor.

    Raises:
        TypeError: The networks are not of the kind.
    """

    actor = DeterministicActor

    def __init__(self, policy: Any, critics: Critics, targets: Critics, target_policy: Any) -> None:
        super().__init__(policy, critics, targets)
        self._target_policy = Chain(target_policy.net)

    def target_actions(self, next_obs: Any) -> Tensor:
        """What the slow copy of the actor does, [B, d]."""
        return self._target_policy.forward(self.features(next_obs).t()).tanh().t()

    def target_values(self, next_obs: Any, actions: Tensor) -> Tensor:
        """Q̄_i(s', a'), [n, B]."""
        return self.targets.forward(torch.cat((self.features(next_obs), actions), 1))

    def actor_gradient(self, obs: Any) -> Tensor:
        """Fills the gradient of the actor with that of −mean(Q_1(s, μ(s))).

        Returns:
            The loss [].
        """
        x = self.features(obs)
        actions = self.policy.forward(x.t()).tanh()
        values = self.critics.forward(torch.cat((x, actions.t()), 1), n=1)
        slopes = torch.full_like(values, -1.0 / len(x))
        by_action = self.critics.input_gradient(slopes)[:, x.shape[1] :].t()
        self.policy.backward(torch.addcmul(by_action, by_action, actions.square(), value=-1.0))
        return -values.mean()
