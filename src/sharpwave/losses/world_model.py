"""Losses and transforms of world models (DreamerV3: Hafner et al., 2023, arXiv:2301.04104)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sharpwave.primitives.world import plain as plain
from sharpwave.primitives.world import tensors as world

__all__ = [
    "balanced_kl",
    "draw",
    "lambda_returns",
    "symexp",
    "symlog",
    "two_hot_bins",
    "two_hot_loss",
    "two_hot_losses",
    "two_hot_mean",
    "unimix",
]


def symlog(x: Tensor) -> Tensor:
    """sign(x) ln(1 + |x|): the identity near 0, a logarithm far from it.

    Example:
        >>> symlog(torch.tensor([0.0, -1.0])).tolist()
        [0.0, -0.6931471824645996]
    """
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    """sign(x) (exp(|x|) − 1), the inverse of `symlog`.

    Example:
        >>> symexp(symlog(torch.tensor([3.0]))).item()
        3.0
    """
    return x.sign() * x.abs().expm1()


def two_hot_bins(n: int = 255, limit: float = 20.0, device: torch.device | None = None) -> Tensor:
    """Bins [n] from −symexp(limit) to symexp(limit), dense near 0 and exactly symmetric.

    Args:
        n: Number of bins, odd.
        limit: Logarithm of the outermost ones.
        device: Device of the bins.

    Raises:
        ValueError: `n` is even or less than 3, so that no bin is 0.

    Example:
        >>> bins = two_hot_bins(5, 2.0)
        >>> bins[2].item(), bool((bins == -bins.flip(0)).all())
        (0.0, True)
    """
    if n < 3 or n % 2 == 0:
        raise ValueError(f"n must be odd and at least 3, got {n}")
    half = symexp(torch.linspace(-limit, 0.0, n // 2 + 1, device=device))
    half[-1] = 0.0
    return torch.cat((half, -half[:-1].flip(0)))


def two_hot_loss(logits: Tensor, targets: Tensor, bins: Tensor) -> Tensor:
    """Cross-entropy of a distribution over bins with a target spread over the two bins around it.

    A target outside of the bins counts as the outermost one, and one at a bin as that bin alone.

    Args:
        logits: [..., n].
        targets: [...].
        bins: [n] in ascending order.

    Returns:
        [...] loss.

    Example:
        >>> bins = torch.tensor([-1.0, 0.0, 1.0])
        >>> two_hot_loss(torch.zeros(3), torch.tensor(0.25), bins).item()
        1.0986123085021973
    """
    return world.two_hot_loss(logits, bins, (targets,), (1.0,))


def two_hot_losses(
    logits: Tensor, targets: Sequence[Tensor], weights: Sequence[float], bins: Tensor
) -> Tensor:
    """`two_hot_loss` of several targets [...], added up by weights, in one pass."""
    return world.two_hot_loss(logits, bins, targets, weights)


def two_hot_mean(logits: Tensor, bins: Tensor) -> Tensor:
    """The mean Σ p b of a distribution over symmetric bins.

    Bins of one size are subtracted from each other before they are added up, so that equal
    probabilities give exactly 0 whatever the size of the largest bins.

    Args:
        logits: [..., n].
        bins: [n] with bins[i] = −bins[n − 1 − i].

    Returns:
        [...] means.

    Example:
        >>> two_hot_mean(torch.zeros(4, 255), two_hot_bins()).tolist()
        [0.0, 0.0, 0.0, 0.0]
    """
    if logits.requires_grad and torch.is_grad_enabled():
        return plain.two_hot_mean(logits, bins)
    return world.two_hot_mean(logits, bins)


def unimix(logits: Tensor, share: float = 0.01) -> Tensor:
    """Log-probabilities of categoricals that are mixed with a share of the uniform one.

    No class is impossible then, and divergences between two of them are bounded.

    Args:
        logits: [..., n].
        share: Of the uniform distribution; 0 changes nothing.

    Returns:
        [..., n] normalized log-probabilities.

    Example:
        >>> [round(p, 6) for p in unimix(torch.tensor([1000.0, 0.0]), 0.1).exp().tolist()]
        [0.95, 0.05]
    """
    if share == 0.0:
        return logits.log_softmax(-1)
    probs = (1.0 - share) * logits.softmax(-1) + share / logits.shape[-1]
    return probs.log()


def draw(log_probs: Tensor, noise: Tensor) -> Tensor:
    """One-hot draws from categoricals, with the gradient of their probabilities.

    Args:
        log_probs: [..., n] log-probabilities.
        noise: [..., n] of Gumbel's distribution; zeros take the likeliest class.

    Returns:
        [..., n] one-hot.

    Example:
        >>> draw(torch.tensor([0.2, 0.8]).log(), torch.zeros(2)).argmax(-1).item()
        1
    """
    chosen = one_hot((log_probs + noise).argmax(-1), log_probs.shape[-1]).to(log_probs.dtype)
    probs = log_probs.exp()
    return chosen + probs - probs.detach()


def balanced_kl(
    posterior: Tensor, prior: Tensor, *, free_nats: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The divergence of a posterior from a prior, once for the gradient of each.

    With the sum over latents D(p ‖ q) = Σ p (log p − log q), stopped gradients [·] and f free nats,

        dynamics = max(f, D([posterior] ‖ prior)),  representation = max(f, D(posterior ‖ [prior])).

    Args:
        posterior: [..., latents, classes] log-probabilities.
        prior: [..., latents, classes] log-probabilities.
        free_nats: f, below which nothing is gained.

    Returns:
        (dynamics [...], representation [...]).

    Example:
        >>> same = torch.zeros(2, 3).log_softmax(-1)
        >>> [loss.item() for loss in balanced_kl(same, same)]
        [1.0, 1.0]
    """

    def divergence(p: Tensor, q: Tensor) -> Tensor:
        return (p.exp() * (p - q)).sum((-2, -1))

    dynamics = divergence(posterior.detach(), prior).clamp(min=free_nats)
    representation = divergence(posterior, prior.detach()).clamp(min=free_nats)
    return dynamics, representation


def lambda_returns(
    rewards: Tensor,
    values: Tensor,
    continues: Tensor,
    last: Tensor,
    *,
    lam: float = 0.95,
    cuts: Tensor | None = None,
) -> Tensor:
    """Returns that mix those of every length, where rewards arrive with their observation.

    R_t = r_{t+1} + c_{t+1} ((1 − λ k_{t+1}) V_{t+1} + λ k_{t+1} R_{t+1}), with R_T = B.

    Args:
        rewards: [T + 1, ...] reward r of each observation; the first is not used.
        values: [T + 1, ...] value V of each observation.
        continues: [T + 1, ...] discount c of what follows each observation, 0 after a terminal one.
        last: [...] bootstrap B at the last observation, its value or a better estimate.
        lam: λ.
        cuts: [T + 1, ...] 1 where an episode's last observation is, which goes on by its value
            alone (k = 1 − cuts); None where there is none.

    Returns:
        [T, ...] returns R of all observations but the last.

    Example:
        >>> ones = torch.ones(3)
        >>> lambda_returns(ones, torch.zeros(3), ones, torch.tensor(5.0), lam=1.0).tolist()
        [7.0, 6.0]
    """
    returns = [last]
    for t in reversed(range(len(rewards) - 1)):
        goes_on = lam if cuts is None else lam * (1.0 - cuts[t + 1])
        following = (1.0 - goes_on) * values[t + 1] + goes_on * returns[-1]
        returns.append(rewards[t + 1] + continues[t + 1] * following)
    return torch.stack(returns[:0:-1])
