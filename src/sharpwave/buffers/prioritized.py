"""Prioritized experience replay (Schaul et al., 2016)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sharpwave.buffers.replay import ReplayBuffer
from sharpwave.buffers.schema import FieldSpec, Schema
from sharpwave.core.flags import flag


def check_exponent(name: str, value: object) -> float:
    """A finite number of at least 0, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0.0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return number


def check_weight_norm(value: Any) -> Literal["buffer", "batch"]:
    """The `weight_norm`, or an error if it is unknown."""
    if value not in ("buffer", "batch"):
        raise ValueError(f'weight_norm must be "buffer" or "batch", got {value!r}')
    known: Literal["buffer", "batch"] = value
    return known


def priority_options(
    alpha: float = 0.6,
    beta: float = 0.4,
    *,
    kind: Literal["proportional", "rank"] = "proportional",
    stratified: bool = True,
    weight_norm: Literal["buffer", "batch"] = "buffer",
) -> tuple[str, float, float, bool, bool]:
    """The checked options of priorities, as an engine takes them."""
    if kind not in ("proportional", "rank"):
        raise ValueError(f'kind must be "proportional" or "rank", got {kind!r}')
    return (
        kind,
        check_exponent("alpha", alpha),
        check_exponent("beta", beta),
        flag("stratified", stratified),
        check_weight_norm(weight_norm) == "batch",
    )


class PriorityControls(ReplayBuffer):
    """Properties and setters of a buffer with priorities."""

    __slots__ = ()

    @property
    def alpha(self) -> float:
        """Priority exponent α; 0 draws uniformly."""
        return float(self._checked_priorities()[1])

    @property
    def beta(self) -> float:
        """Importance-sampling exponent β; 1 corrects fully."""
        self._checked_priorities()
        return float(self._engine.beta)

    def set_beta(self, beta: float) -> None:
        """Set the importance-sampling exponent β; annealed towards 1 in training."""
        self._checked_priorities()
        self._engine.beta = check_exponent("beta", beta)

    @property
    def max_priority(self) -> float:
        """The highest priority so far, which new steps get."""
        return float(self._engine.max_priority)

    def _checked_priorities(self) -> tuple[str, float, float, bool, bool]:
        options: tuple[str, float, float, bool, bool] | None = self._options["priorities"]
        if options is None:
            raise ValueError("the buffer has no priorities")
        return options

    def stats(self) -> dict[str, Any]:
        """The numbers of `ReplayBuffer.stats`, with max_priority and beta."""
        return {**super().stats(), "max_priority": self.max_priority, "beta": self.beta}


class PrioritizedReplayBuffer(PriorityControls):
    """Prioritized replay buffer: draws steps by priority and gives importance-sampling weights.

        P(i) = p_i^α / Σ p_j^α  (proportional)   or   P(i) ∝ (1 / rank_i)^α  (rank)
        weights_i = (N P(i))^-β / max_j (N P(j))^-β

    `push` takes a `priority`, by default the highest since the last `clear`;
    `update_priorities(indices, priorities)` sets those of drawn steps and takes TD errors of either
    sign. A step of priority 0 is never drawn. A priority for a step that was overwritten since it
    was drawn is dropped and counted (`stats()["stale_updates"]`).

    Batches carry `weights` and `indices` besides the fields.

    Args:
        capacity: As in `ReplayBuffer`.
        obs_dim: As in `ReplayBuffer`.
        act_dim: As in `ReplayBuffer`.
        alpha: Priority exponent α; 0 draws uniformly.
        beta: Importance-sampling exponent β; 1 corrects the bias of the draws fully.
        fields: As in `ReplayBuffer`.
        n_envs: As in `ReplayBuffer`.
        seed: As in `ReplayBuffer`.
        kind: "proportional" or "rank". Ranks are brought up to date once an eighth of the steps
            have changed.
        stratified: One draw from each of batch_size equal parts of the total, instead of
            independent draws.
        weight_norm: The maximum in the weights is over the "buffer" (as in the paper) or the
            "batch".

    Example:
        >>> import numpy as np
        >>> buffer = PrioritizedReplayBuffer(capacity=100, obs_dim=2, act_dim=1)
        >>> for i in range(10):
        ...     buffer.push([i, i], 0.0, float(i), False, False, [i, i])
        >>> batch = buffer.sample(4, seed=1)
        >>> buffer.update_priorities(batch["indices"], np.array([0.1, 2.0, -3.0, 0.4]))
        0
    """

    __slots__ = ()

    def __init__(
        self,
        capacity: int,
        obs_dim: int | None = None,
        act_dim: int | None = None,
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        fields: Mapping[str, FieldSpec] | Schema | None = None,
        n_envs: int | None = None,
        seed: int = 0,
        kind: Literal["proportional", "rank"] = "proportional",
        stratified: bool = True,
        weight_norm: Literal["buffer", "batch"] = "buffer",
    ) -> None:
        self._make(
            capacity,
            obs_dim,
            act_dim,
            fields=fields,
            n_envs=n_envs,
            seed=seed,
            priorities=priority_options(
                alpha, beta, kind=kind, stratified=stratified, weight_norm=weight_norm
            ),
        )
