"""Log-probability, entropy and their gradients by the actor's output, features along the rows.

Each head stands for one distribution. `encode` turns actions into rows of float32 that `forward`
wants; `backward` takes wᵢ = −∂L/∂log π(aᵢ) and c = −∂L/∂Hᵢ, and gives ∂L/∂output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.distributions import (
    LOG_SQRT_2PI,
    MASKED_LOGIT,
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
)

__all__ = ["HEADS", "Head", "make_head", "rule_out"]


class Head(ABC):
    """What the actor's output [n, B] means.

    Attributes:
        n: Width of the output, and of encoded actions.
        maskable: Whether actions can be forbidden.
    """

    n: int
    maskable: bool = True

    @abstractmethod
    def encode(self, actions: Tensor) -> Tensor:
        """Actions [N, *shape] as rows [n, N]."""

    @abstractmethod
    def forward(self, output: Tensor, actions: Tensor, minus_entropy: Tensor) -> Tensor:
        """Log-probabilities [1, B] of encoded actions [n, B]; writes `minus_entropy` [1, B]."""

    @abstractmethod
    def backward(self, weights: Tensor, entropy_weight: float) -> Tensor:
        """∂L/∂output [n, B] at the last `forward`, from w [1, B] and c."""


def rule_out(logits: Tensor, masks: Tensor) -> None:
    """Rules out the actions whose mask is 0, in place; both are [n, B]."""
    logits.masked_fill_(masks == 0.0, MASKED_LOGIT)


class CategoricalHead(Head):
    """Independent choices, each among some actions, from logits side by side.

    With p = softmax(z), ∂log p_a/∂z = onehot(a) − p and ∂H/∂z = −p (log p + H) for each choice.

    Args:
        nvec: Number of actions of each choice.
        device: Where the logits lie.
    """

    def __init__(self, nvec: Sequence[int], device: torch.device) -> None:
        self.n = sum(nvec)
        self._nvec = list(nvec)
        choice = torch.arange(len(nvec)).repeat_interleave(torch.tensor(self._nvec))
        self._choice = choice.to(device)
        self._value = torch.cat([torch.arange(n) for n in nvec])[:, None].to(device)
        # Multiplying by it sums each choice and gives the sum to all rows of the choice.
        self._sum = (choice[:, None] == choice).float().to(device)

    def encode(self, actions: Tensor) -> Tensor:
        by_choice = actions.reshape(len(actions), len(self._nvec)).t()
        return by_choice.index_select(0, self._choice) == self._value

    def forward(self, output: Tensor, actions: Tensor, minus_entropy: Tensor) -> Tensor:
        if len(self._nvec) == 1:
            log_probs = torch.log_softmax(output, 0)
        else:
            log_probs = torch.cat([part.log_softmax(0) for part in output.split(self._nvec)])
        self._actions = actions
        self._probs = log_probs.exp()
        self._terms = self._probs * log_probs
        self._minus_entropy = torch.sum(self._terms, 0, keepdim=True, out=minus_entropy)
        return log_probs.mul_(actions).sum(0, keepdim=True)

    def backward(self, weights: Tensor, entropy_weight: float) -> Tensor:
        grad = self._probs.sub(self._actions).mul_(weights)
        if entropy_weight:
            by_choice = self._minus_entropy if len(self._nvec) == 1 else self._sum @ self._terms
            grad.add_(
                self._terms.addcmul_(self._probs, by_choice, value=-1.0), alpha=entropy_weight
            )
        return grad


class BernoulliHead(Head):
    """Independent bits.

    With p = sigmoid(z), ∂log π/∂z = a − p and ∂H/∂z = −z p (1 − p).

    Args:
        n: Number of bits.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def encode(self, actions: Tensor) -> Tensor:
        return actions.t()

    def forward(self, output: Tensor, actions: Tensor, minus_entropy: Tensor) -> Tensor:
        self._actions = actions
        self._logits = output
        self._probs = output.sigmoid()
        plus = softplus(output)
        torch.sum(output * self._probs - plus, 0, keepdim=True, out=minus_entropy)
        return (actions * output - plus).sum(0, keepdim=True)

    def backward(self, weights: Tensor, entropy_weight: float) -> Tensor:
        grad = self._probs.sub(self._actions).mul_(weights)
        if entropy_weight:
            slope = self._probs * (1.0 - self._probs)
            grad.addcmul_(self._logits, slope, value=entropy_weight)
        return grad


class GaussianHead(Head):
    """Independent normal variables with means from the actor and one log σ each for all states.

    With e = (μ − a)/σ, ∂log π/∂μ = −e/σ, ∂log π/∂log σ = e² − 1 and ∂H/∂log σ = 1.

    Args:
        log_std: [n] parameter log σ, whose gradient `backward` writes.
    """

    maskable = False

    def __init__(self, log_std: nn.Parameter) -> None:
        assert log_std.grad is not None
        self.n = len(log_std)
        self._log_std = log_std.data
        self._grad = log_std.grad

    def encode(self, actions: Tensor) -> Tensor:
        return actions.t()

    def forward(self, output: Tensor, actions: Tensor, minus_entropy: Tensor) -> Tensor:
        self._precision = (-self._log_std).exp_()[:, None]
        self._errors = (output - actions).mul_(self._precision)
        self._squares = self._errors.square()
        log_stds = self._log_std.sum()
        log_probs = self._squares.sum(0, keepdim=True).mul_(-0.5)
        minus_entropy.copy_(-(log_stds + self.n * (0.5 + LOG_SQRT_2PI)))
        return log_probs.sub_(log_stds + self.n * LOG_SQRT_2PI)

    def backward(self, weights: Tensor, entropy_weight: float) -> Tensor:
        constant = weights.sum() - entropy_weight * weights.shape[1]
        torch.mv(self._squares, weights[0], out=self._grad).neg_().add_(constant)
        return self._errors.mul_(self._precision).mul_(weights)


HEADS = (Categorical, MultiCategorical, Bernoulli, DiagonalGaussian)
"""Distributions that have a head."""


def make_head(policy: ActorCritic) -> Head:
    """The head of a policy whose distribution is one of `HEADS`."""
    distribution = policy.distribution
    device = next(policy.parameters()).device
    if isinstance(distribution, Categorical):
        return CategoricalHead([distribution.n_params], device)
    if isinstance(distribution, MultiCategorical):
        return CategoricalHead(distribution.nvec, device)
    if isinstance(distribution, Bernoulli):
        return BernoulliHead(distribution.n_params)
    assert policy.log_std is not None
    return GaussianHead(policy.log_std)
