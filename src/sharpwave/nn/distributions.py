"""Action distributions as small pure functions of their parameters.

They run once per minibatch and once per step, so each is a handful of tensor operations, and each
draws from the generator it is given with operations that a CUDA graph can hold. Leading axes are
free: where a shape says B it may as well be T, B.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import softplus

__all__ = [
    "LOG_SQRT_2PI",
    "MASKED_LOGIT",
    "TINY",
    "Bernoulli",
    "Categorical",
    "DiagonalGaussian",
    "Discrete",
    "Distribution",
    "GaussianParams",
    "MultiCategorical",
    "SquashedGaussian",
    "make_distribution",
]

MASKED_LOGIT = -1e8
"""Logit of a forbidden action: its probability is exactly 0 in float32, and 0 times its
log-probability is still 0."""

# Below a forbidden action, so that padding is never chosen even where all actions are forbidden.
_PADDING_LOGIT = 10 * MASKED_LOGIT

TINY = torch.finfo(torch.float32).tiny
"""Smallest uniform variable that is drawn."""

MANY = 1024
"""Rows from which on logits are turned for their softmax."""

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
"""Logarithm of the normal density's constant, negated."""

P = TypeVar("P")

GaussianParams: TypeAlias = tuple[Tensor, Tensor]
"""Means [B, d] and logarithms of the standard deviations, [d] or [B, d]."""


class Distribution(ABC, Generic[P]):
    """Action distribution: from an actor's output to samples, log-probabilities and entropy.

    Attributes:
        n_params: Width of the actor's output.
        action_shape: Shape of one raw action.
        action_dtype: Type of raw actions.
    """

    n_params: int
    action_shape: tuple[int, ...]
    action_dtype: ClassVar[torch.dtype] = torch.int64

    @abstractmethod
    def sample(self, params: P, generator: torch.Generator | None = None) -> Tensor:
        """Draws one action per row: [B, *action_shape]."""

    @abstractmethod
    def mode(self, params: P) -> Tensor:
        """The most likely action of each row: [B, *action_shape]."""

    @abstractmethod
    def log_prob(self, params: P, actions: Tensor) -> Tensor:
        """Log-probability (density) of raw actions [B, *action_shape]: [B]."""

    @abstractmethod
    def entropy(self, params: P) -> Tensor:
        """Entropy in nats: [B]."""

    def sample_and_log_prob(
        self, params: P, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """`sample` and `log_prob` of it, sharing their work: ([B, *action_shape], [B])."""
        actions = self.sample(params, generator)
        return actions, self.log_prob(params, actions)

    def log_prob_and_entropy(self, params: P, actions: Tensor) -> tuple[Tensor, Tensor]:
        """`log_prob` and `entropy`, sharing their work: ([B], [B])."""
        return self.log_prob(params, actions), self.entropy(params)


class Discrete(Distribution[Tensor]):
    """Base of the distributions over logits [B, n_params]."""

    def mask(self, logits: Tensor, masks: Tensor) -> Tensor:
        """The logits with forbidden actions ruled out.

        Args:
            logits: [B, n_params].
            masks: [B, n_params] bool, False where forbidden.

        Raises:
            ValueError: The shape or type does not fit, or a row allows nothing. The latter is
                checked on the CPU only, where looking does not wait; elsewhere every action of
                such a row is equally likely.
        """
        if masks.shape != logits.shape or masks.dtype != torch.bool:
            raise ValueError(
                f"masks must be bool of shape {tuple(logits.shape)}, "
                f"got {masks.dtype} of shape {tuple(masks.shape)}"
            )
        if masks.device.type == "cpu":
            self._check_some_allowed(masks)
        return logits.masked_fill(~masks, MASKED_LOGIT)

    @abstractmethod
    def _check_some_allowed(self, masks: Tensor) -> None:
        """Raises where a choice has no allowed action."""


def _check_rows(allowed: Tensor) -> None:
    """Raises where a row of [..., n] allows nothing."""
    some = allowed.any(-1)
    if not bool(some.all()):
        where = (~some).nonzero()[0].tolist()
        raise ValueError(f"masks must allow at least one action, none is allowed at {where}")


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Indices [...] drawn from normalized log-probabilities [..., n].

    The smallest of independent exponential variables with rates p_i is the i-th with probability
    p_i, and -log(u) / p_i is such a variable. Its inverse is compared, so that p_i = 0 gives 0,
    which never wins: u is kept off 0 and is never 1, so the others stay off 0 and infinity.
    """
    uniform = torch.empty_like(log_probs).uniform_(TINY, 1.0, generator=generator)
    return (log_probs.exp() / uniform.log_()).argmin(-1)


def _log_softmax(logits: Tensor) -> Tensor:
    """Normalized log-probabilities [..., n], in memory [n, B] where there are many rows.

    On the CPU torch takes short rows a number at a time, and a column of many at once.
    """
    if logits.ndim != 2 or len(logits) < MANY or not logits.is_cpu:
        return logits.log_softmax(-1)
    return logits.t().contiguous().log_softmax(0).t()


def _pick(log_probs: Tensor, indices: Tensor) -> Tensor:
    return log_probs.gather(-1, indices.unsqueeze(-1)).squeeze(-1)


class Categorical(Discrete):
    """Categorical distribution of `n` actions, from logits [B, n]; actions are int64 [B].

    Args:
        n: Number of actions.

    Example:
        >>> choice = Categorical(3)
        >>> logits = choice.mask(torch.zeros(1, 3), torch.tensor([[False, True, True]]))
        >>> choice.entropy(logits).exp().item()
        2.0
    """

    def __init__(self, n: int) -> None:
        self.n_params = n
        self.action_shape = ()

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _draw(params.log_softmax(-1), generator)

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(-1)

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        return _pick(params.log_softmax(-1), actions.long())

    def entropy(self, params: Tensor) -> Tensor:
        log_probs = params.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample_and_log_prob(
        self, params: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        log_probs = params.log_softmax(-1)
        actions = _draw(log_probs, generator)
        return actions, _pick(log_probs, actions)

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = _log_softmax(params)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return _pick(log_probs, actions.long()), entropy

    def _check_some_allowed(self, masks: Tensor) -> None:
        _check_rows(masks)


class MultiCategorical(Discrete):
    """Several independent categoricals, from their logits side by side [B, sum(nvec)].

    Actions are int64 [B, k]; log-probabilities and entropies are the sums over the choices.

    Args:
        nvec: Number of actions of each choice.

    Example:
        >>> choices = MultiCategorical([2, 3])
        >>> choices.log_prob(torch.zeros(1, 5), torch.tensor([[1, 2]])).exp().item()
        0.1666...
    """

    def __init__(self, nvec: Sequence[int]) -> None:
        counts = [int(n) for n in nvec]
        self.nvec = tuple(counts)
        self.n_params = sum(counts)
        self.action_shape = (len(counts),)
        self._widest = max(counts)
        # Where each logit stands once every choice is as wide as the widest; None if they are.
        self._slots: Tensor | None = None
        if len(set(counts)) > 1:
            rows = [torch.arange(n) + i * self._widest for i, n in enumerate(counts)]
            self._slots = torch.cat(rows)

    def _apart(self, flat: Tensor, padding: float | bool) -> Tensor:
        """[B, sum(nvec)] as [B, k, widest], padded."""
        shape = (*flat.shape[:-1], self.action_shape[0], self._widest)
        if self._slots is None:
            return flat.reshape(shape)
        if self._slots.device != flat.device:
            self._slots = self._slots.to(flat.device)
        padded = flat.new_full((*flat.shape[:-1], shape[-2] * shape[-1]), padding)
        return padded.index_copy(-1, self._slots, flat).reshape(shape)

    def _log_probs(self, params: Tensor) -> Tensor:
        return self._apart(params, _PADDING_LOGIT).log_softmax(-1)

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _draw(self._log_probs(params), generator)

    def mode(self, params: Tensor) -> Tensor:
        return self._apart(params, _PADDING_LOGIT).argmax(-1)

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        return _pick(self._log_probs(params), actions.long()).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        log_probs = self._log_probs(params)
        return -(log_probs.exp() * log_probs).sum((-2, -1))

    def sample_and_log_prob(
        self, params: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs(params)
        actions = _draw(log_probs, generator)
        return actions, _pick(log_probs, actions).sum(-1)

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs(params)
        entropy = -(log_probs.exp() * log_probs).sum((-2, -1))
        return _pick(log_probs, actions.long()).sum(-1), entropy

    def _check_some_allowed(self, masks: Tensor) -> None:
        _check_rows(self._apart(masks, False))


class Bernoulli(Discrete):
    """Independent Bernoulli variables from logits [B, n]; actions are int64 [B, n] of 0 and 1.

    A mask forbids bits to be set, so a row that allows nothing is a row of zeros.

    Args:
        n: Number of bits.
    """

    def __init__(self, n: int) -> None:
        self.n_params = n
        self.action_shape = (n,)

    def sample(self, params: Tensor, generator: torch.Generator | None = None) -> Tensor:
        uniform = torch.empty_like(params).uniform_(generator=generator)
        return (uniform < params.sigmoid()).long()

    def mode(self, params: Tensor) -> Tensor:
        return (params > 0).long()

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        return (actions * params - softplus(params)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return (softplus(params) - params * params.sigmoid()).sum(-1)

    def _check_some_allowed(self, masks: Tensor) -> None:
        """Zeros are always allowed."""


class DiagonalGaussian(Distribution[GaussianParams]):
    """Diagonal Gaussian from (mean, log_std); actions are float32 [B, d].

    What is sampled can be differentiated by the parameters.

    Args:
        dim: Number of variables.
    """

    action_dtype = torch.float32

    def __init__(self, dim: int) -> None:
        self.n_params = dim
        self.action_shape = (dim,)

    def sample(self, params: GaussianParams, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = params
        noise = torch.empty_like(mean).normal_(generator=generator)
        return torch.addcmul(mean, noise, log_std.exp())

    def mode(self, params: GaussianParams) -> Tensor:
        return params[0]

    def log_prob(self, params: GaussianParams, actions: Tensor) -> Tensor:
        mean, log_std = params
        scaled = (actions - mean) * (-log_std).exp()
        constant = self.n_params * LOG_SQRT_2PI
        return -0.5 * scaled.square().sum(-1) - (log_std.sum(-1) + constant)

    def entropy(self, params: GaussianParams) -> Tensor:
        mean, log_std = params
        entropy = log_std.sum(-1) + self.n_params * (0.5 + LOG_SQRT_2PI)
        return entropy.expand(mean.shape[:-1])


class SquashedGaussian(DiagonalGaussian):
    r"""Squashed Gaussian: tanh of normal variables, from the same (mean, log_std).

    Raw actions are the variables before the tanh, u, so nothing has to be inverted:

    $$\log \pi(\tanh u) = \log \mathcal N(u) - \sum_i \log(1 - \tanh^2 u_i)$$

    The entropy has no closed form. It is the normal one plus $\sum_i E[\log(1 - \tanh^2 u_i)]$,
    an expectation over one normal variable per dimension, which the trapezoidal rule gives to 1e-5
    nats for standard deviations up to 1 and 1e-3 up to 2. So it needs no random numbers, has no
    sampling noise, and its gradient is that of the entropy itself (a stored action's -log pi has
    a gradient of mean zero instead).

    Args:
        dim: Number of variables.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self._nodes = torch.linspace(-4.5, 4.5, 16)
        self._weights = (-0.5 * self._nodes.square()).softmax(0)

    def log_prob(self, params: GaussianParams, actions: Tensor) -> Tensor:
        return super().log_prob(params, actions) - _log_tanh_slope(actions).sum(-1)

    def log_prob_of_noise(self, raw: Tensor, log_std: Tensor, noise: Tensor) -> Tensor:
        """log_prob of raw = mean + exp(log_std) noise, [B, d] each, from what made it."""
        normal = -0.5 * noise.square() - log_std - LOG_SQRT_2PI
        return (normal - _log_tanh_slope(raw)).sum(-1)

    def entropy(self, params: GaussianParams) -> Tensor:
        mean, log_std = params
        if self._nodes.device != mean.device:
            self._nodes = self._nodes.to(mean.device)
            self._weights = self._weights.to(mean.device)
        u = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * self._nodes
        return super().entropy(params) + (_log_tanh_slope(u) @ self._weights).sum(-1)


def _log_tanh_slope(u: Tensor) -> Tensor:
    """log(1 - tanh(u)^2) without cancellation."""
    return 2.0 * (math.log(2.0) - u - softplus(-2.0 * u))


def make_distribution(space: spaces.Space[Any], *, squash: bool = False) -> Distribution[Any]:
    """The distribution of raw actions for an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary or Box.
        squash: Squashes Box actions by tanh instead of leaving them unbounded.

    Raises:
        TypeError: The space has no distribution.
        ValueError: Squashing is asked of discrete actions.

    Example:
        >>> make_distribution(spaces.Discrete(4)).n_params
        4
    """
    if isinstance(space, spaces.Box):
        dim = math.prod(space.shape)
        return SquashedGaussian(dim) if squash else DiagonalGaussian(dim)
    if squash:
        raise ValueError(f"squash needs a Box action space, got {space}")
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical([int(n) for n in space.nvec.reshape(-1)])
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(math.prod(space.shape))
    raise TypeError(
        f"action_space must be Discrete, MultiDiscrete, MultiBinary or Box, got {space}"
    )
