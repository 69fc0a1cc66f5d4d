"""rlox's small stores: steps of a rollout, token sequences, and pairs of preferences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.buffers.replay import check_count
from sharpwave.types import Array

__all__ = ["DPOPair", "ExperienceTable", "VarLenStore"]

Tokens = npt.NDArray[np.uint32]


class ExperienceTable:
    """Steps in the order they were pushed, for on-policy learning.

    Args:
        obs_dim: Length of observations.
        act_dim: Length of actions.

    Example:
        >>> table = ExperienceTable(obs_dim=4, act_dim=1)
        >>> table.push(np.zeros(4), [0.0], 1.0, False, False)
        >>> len(table), table.observations().shape
        (1, (1, 4))
    """

    def __init__(self, obs_dim: int, act_dim: int) -> None:
        self._obs_dim = check_count("obs_dim", obs_dim, 1)
        self._act_dim = check_count("act_dim", act_dim, 1)
        self.clear()

    def push(
        self,
        obs: npt.ArrayLike,
        action: npt.ArrayLike,
        reward: float,
        terminated: bool,
        truncated: bool,
        next_obs: npt.ArrayLike | None = None,
    ) -> None:
        """Append a step.

        Raises:
            ValueError: A length does not fit.
        """
        step = [_vector("obs", obs, self._obs_dim), _vector("action", action, self._act_dim)]
        if next_obs is not None:
            _vector("next_obs", next_obs, self._obs_dim)
        self._steps.append((*step, float(reward), bool(terminated), bool(truncated)))

    def observations(self) -> Array:
        """[N, obs_dim] float32."""
        return np.array([step[0] for step in self._steps], np.float32).reshape(-1, self._obs_dim)

    def rewards(self) -> Array:
        """[N] float32."""
        return np.array([step[2] for step in self._steps], np.float32)

    def clear(self) -> None:
        """Forget all steps."""
        self._steps: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._steps)


class VarLenStore:
    """Token sequences of different lengths.

    Example:
        >>> store = VarLenStore()
        >>> store.push([1, 2, 3])
        >>> store.get(0).tolist(), store.num_sequences(), store.total_elements()
        ([1, 2, 3], 1, 3)
    """

    def __init__(self) -> None:
        self._sequences: list[Tokens] = []

    def push(self, seq: npt.ArrayLike) -> None:
        """Append a sequence."""
        self._sequences.append(_tokens("seq", seq))

    def get(self, index: int) -> Tokens:
        """A copy of a sequence.

        Raises:
            IndexError: There is none.
        """
        if not 0 <= index < len(self._sequences):
            raise IndexError(f"index must be less than {len(self._sequences)}, got {index}")
        return self._sequences[index].copy()

    def num_sequences(self) -> int:
        """Number of sequences."""
        return len(self._sequences)

    def total_elements(self) -> int:
        """Tokens of all of them."""
        return sum(map(len, self._sequences))


@dataclass(frozen=True, eq=False)
class DPOPair:
    """A prompt with a preferred and a rejected completion.

    Attributes:
        prompt_tokens: The prompt.
        chosen_tokens: The preferred completion.
        rejected_tokens: The rejected completion.
    """

    prompt_tokens: Any = field()
    chosen_tokens: Any = field()
    rejected_tokens: Any = field()

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "chosen_tokens", "rejected_tokens"):
            object.__setattr__(self, name, _tokens(name, getattr(self, name)))

    def chosen_len(self) -> int:
        """Tokens of the preferred completion."""
        return len(self.chosen_tokens)

    def rejected_len(self) -> int:
        """Tokens of the rejected one."""
        return len(self.rejected_tokens)


def _vector(name: str, given: npt.ArrayLike, length: int) -> Array:
    array: Array = np.array(given, np.float32).reshape(-1)
    if len(array) != length:
        raise ValueError(f"{name} must have length {length}, got {len(array)}")
    return array


def _tokens(name: str, given: npt.ArrayLike) -> Tokens:
    array = np.asarray(given)
    if array.ndim != 1:
        raise ValueError(f"{name} must be a vector of tokens, got shape {array.shape}")
    tokens = array.astype(np.uint32)
    if not np.array_equal(tokens, array):
        raise ValueError(f"{name} must hold integers from 0 to 2**32 - 1")
    return tokens
