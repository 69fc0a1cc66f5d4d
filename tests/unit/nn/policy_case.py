"""A policy, a rollout, and the gradient of its loss by autograd in double."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave import losses
from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.flat import FlatParameters

ACTIONS: dict[str, spaces.Space[Any]] = {
    "categorical": spaces.Discrete(5),
    "two actions": spaces.Discrete(2),
    "multi categorical": spaces.MultiDiscrete([3, 3]),
    "uneven multi categorical": spaces.MultiDiscrete([2, 4, 3]),
    "bernoulli": spaces.MultiBinary(4),
    "gaussian": spaces.Box(-1.0, 1.0, (3,)),
}
MASKED = [name for name in ACTIONS if name != "gaussian"]


class Case:
    """A policy away from its start, and a rollout of an older version of it."""

    def __init__(
        self,
        actions: str = "categorical",
        *,
        rows: int = 32,
        masks: bool = False,
        activation: str = "tanh",
        hidden: tuple[int, ...] = (16, 12),
        critic_hidden: tuple[int, ...] | None = None,
    ) -> None:
        rng = np.random.default_rng(0)
        torch.manual_seed(0)
        self.observation_space = spaces.Box(-np.inf, np.inf, (6,))
        self.action_space = ACTIONS[actions]
        self.policy = ActorCritic(
            self.observation_space,
            self.action_space,
            hidden=hidden,
            critic_hidden=critic_hidden,
            activation=activation,
            generator=rng,
        )
        self.flat = FlatParameters(self.policy)
        self.flat.data.add_(0.1 * torch.randn_like(self.flat.data))
        self.obs = torch.randn(rows, 6)
        self.masks: Tensor | None = None
        if masks:
            n = self.policy.distribution.n_params
            self.masks = torch.rand(rows, n) < 0.6
            self.masks[:, 0] = True
            for start in (2, 3, 6):
                self.masks[:, min(start, n - 1)] = True
        acted = self.policy.act(self.obs, masks=self.masks)
        self.actions, self.log_probs, self.old_values = acted[:3]
        self.flat.data.add_(0.15 * torch.randn_like(self.flat.data))
        self.advantages = 2.0 * torch.randn(rows) + 0.5
        self.returns = torch.randn(rows)
        self.old_values += 0.2 * torch.randn(rows)
        # gradients left over from before must not matter
        self.flat.grad.fill_(float("nan"))

    def differentiated(
        self, indices: Tensor | None = None, *, clip: float | None = 0.2, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Gradient and metrics by autograd in float64; A2C's where there is no clip."""
        vf_coef, ent_coef = options.get("vf_coef", 0.5), options.get("ent_coef", 0.0)
        rows = slice(None) if indices is None else indices
        twin = copy.deepcopy(self.policy).double()
        twin.zero_grad()
        obs = self.obs[rows].double()
        output: Any = twin.actor(obs)
        if self.masks is not None:
            output = output.masked_fill(~self.masks[rows], -1e8)
        elif twin.log_std is not None:
            output = (output, twin.log_std)
        log_probs, entropy = twin.distribution.log_prob_and_entropy(output, self.actions[rows])
        values = twin.critic(obs).squeeze(-1)
        advantages, returns = self.advantages[rows].double(), self.returns[rows].double()
        if options.get("normalize", clip is not None):
            advantages = losses.normalize(advantages)
        kl = fraction = torch.zeros(())
        if clip is None:
            policy_loss = losses.policy_gradient(log_probs, advantages)
        else:
            log_ratio = log_probs - self.log_probs[rows].double()
            policy_loss = losses.clipped_surrogate(log_ratio, advantages, clip)
            kl, fraction = losses.approx_kl(log_ratio), losses.clip_fraction(log_ratio, clip)
        if options.get("clip_vloss", False):
            old_values = self.old_values[rows].double()
            value_clip = options.get("value_clip") or clip or 0.0
            value_loss = losses.clipped_value_loss(values, old_values, returns, value_clip)
        else:
            value_loss = losses.value_loss(values, returns)
        loss = policy_loss + vf_coef * value_loss - ent_coef * entropy.mean()
        grads = torch.autograd.grad(loss, list(twin.parameters()))
        metrics = [policy_loss, value_loss, entropy.mean(), kl, fraction, loss]
        return (
            torch.cat([grad.flatten() for grad in grads]),
            torch.stack([metric.detach().double() for metric in metrics]),
        )


def assert_near(actual: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    error = (actual.double() - expected).norm() / expected.norm()
    assert error.item() < tolerance


def assert_metrics(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=2e-5, atol=1e-6)
