"""Acting with small networks on the CPU, in NumPy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.by_hand import ByHand
from sharpwave.nn.distributions import LOG_SQRT_2PI, TINY, Categorical, DiagonalGaussian
from sharpwave.nn.features import Flat
from sharpwave.nn.numpy_network import Floats, NumpyNetwork, few_rows, rows_of_floats

__all__ = ["NumpyPolicy"]

Ints: TypeAlias = npt.NDArray[np.int64]


class NumpyPolicy:
    """Acts as an `ActorCritic` does, several times faster where rows are few.

    A torch operation on a few rows spends its time around the arithmetic; NumPy spends less there.
    The parameters are the policy's own memory and samples come from the same random numbers, so
    all is as `ActorCritic.act` gives it but for rounding.

    Args:
        policy: A policy of few layers without memory, its parameters on the CPU and where they
            stay, that chooses among actions or moves without squashing; `of` knows.

    Attributes:
        max_rows: Most rows that are few.

    Example:
        >>> from gymnasium import spaces
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> policy = ActorCritic(box, spaces.Discrete(2), generator=np.random.default_rng(0))
        >>> actions, log_probs, values = NumpyPolicy(policy).act(np.zeros((2, 3), "f"))
        >>> np.exp(log_probs)
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, policy: ActorCritic) -> None:
        self._actor = NumpyNetwork(policy.actor)
        self._critic = NumpyNetwork(policy.critic)
        self._log_std = None if policy.log_std is None else policy.log_std.detach().numpy()
        self._noise = torch.empty(0, policy.distribution.n_params)
        self.max_rows = few_rows(policy.actor, policy.critic)

    @classmethod
    def of(cls, policy: nn.Module) -> NumpyPolicy | None:
        """A policy in NumPy where that is possible, None elsewhere.

        Args:
            policy: Any module.
        """
        if not isinstance(policy, ActorCritic) or ByHand.why_not(policy) is not None:
            return None
        known = type(policy.distribution) in (Categorical, DiagonalGaussian)
        on_cpu = all(parameter.device.type == "cpu" for parameter in policy.parameters())
        return cls(policy) if known and on_cpu and type(policy.features) is Flat else None

    def act(
        self, obs: Any, *, deterministic: bool = False, generator: torch.Generator | None = None
    ) -> tuple[npt.NDArray[Any], Floats, Floats]:
        """Chooses actions.

        Args:
            obs: [B, ...] observations.
            deterministic: The most likely action instead of a drawn one.
            generator: Source of the draws; None is torch's global one.

        Returns:
            Raw actions [B, *action shape], their log-probabilities and the values [B].
        """
        x = rows_of_floats(obs)
        values = self._critic(x)[:, 0]
        output = self._actor(x)
        if self._log_std is None:
            return *self._choose(output, deterministic, generator), values
        return *self._move(output, self._log_std, deterministic, generator), values

    def values(self, obs: Any) -> Floats:
        """Values [B] of observations [B, ...]."""
        return self._critic(rows_of_floats(obs))[:, 0]

    def _choose(
        self, logits: Floats, deterministic: bool, generator: torch.Generator | None
    ) -> tuple[Ints, Floats]:
        logits -= np.maximum.reduce(logits, axis=1, keepdims=True)
        probs = np.exp(logits)  # but for the sum of each row
        if deterministic:
            actions = logits.argmax(1)
        else:
            # The first of exponential variables with these rates, as `Categorical` draws.
            uniform = self._noise_for(logits).uniform_(TINY, 1.0, generator=generator).numpy()
            actions = (probs / np.log(uniform)).argmin(1)
        picked = logits[np.arange(len(logits)), actions]
        return actions, picked - np.log(np.add.reduce(probs, axis=1))

    def _move(
        self,
        mean: Floats,
        log_std: Floats,
        deterministic: bool,
        generator: torch.Generator | None,
    ) -> tuple[Floats, Floats]:
        actions = mean
        if not deterministic:
            noise = self._noise_for(mean).normal_(generator=generator).numpy()
            actions = mean + noise * np.exp(log_std)
        # From the rounded action, which is what is stored and evaluated.
        scaled = (actions - mean) * np.exp(-log_std)
        terms = -0.5 * scaled * scaled - (log_std + np.float32(LOG_SQRT_2PI))
        return actions, np.add.reduce(terms, axis=1)

    def _noise_for(self, output: Floats) -> torch.Tensor:
        if len(self._noise) != len(output):
            self._noise = torch.empty(output.shape)
        return self._noise
