"""Steps of Q-learning in native code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.learn.memory import Floats, Numbers, Optimized, rows_of

__all__ = ["QLearner"]


class QLearner:
    """The gradient steps of DQN for multi-layer perceptrons on the CPU.

    It does what `DQN.gradient_step` does with torch, on the same memory. Results do not depend on
    the number of threads.

    A batch is a `ReplayBatch` of arrays or CPU tensors.

    Args:
        n_inputs: Numbers of an observation.
        hidden: Sizes of the hidden layers.
        activation: `"tanh"` or `"relu"`, between the layers.
        choices: Number of options of each choice that makes up an action.
        online: The network; changed by steps.
        target: [n] parameters of its slow copy.
        dueling: The last hidden layer is there twice, for values and advantages.
        threads: Most threads of a step.

    Raises:
        ValueError: The arrays do not fit.

    Example:
        >>> from sharpwave.train.replay import ReplayBatch
        >>> zeros = np.zeros(4, np.float32)
        >>> learner = QLearner(1, (), "relu", [2], Optimized.of(zeros), zeros.copy())
        >>> one = np.ones(1, np.float32)
        >>> batch = ReplayBatch(one[:, None], np.array([1]), one, one[:, None], one)
        >>> metrics, errors = learner.step(batch)
        >>> metrics.tolist(), errors.tolist()
        ([0.5, 0.0, 1.0, 1.4142135623730951], [-1.0])
        >>> zeros.round(3).tolist()
        [0.0, 0.001, 0.0, 0.001]
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int],
        activation: str,
        choices: Sequence[int],
        online: Optimized,
        target: Floats,
        *,
        dueling: bool = False,
        threads: int = 1,
    ) -> None:
        self.threads = threads
        self._n_options = sum(choices)
        self._native = _native.QLearner(
            n_inputs, list(hidden), activation, list(choices), dueling, online, target
        )

    def gradient(
        self, batch: Any, *, double: bool = True, huber: bool = True
    ) -> tuple[Numbers, Floats]:
        """Overwrites the gradient with that of the loss.

        Args:
            batch: What to learn from.
            double: Let the online network choose the action that the target network values.
            huber: The Huber loss, otherwise the square.

        Returns:
            Loss, mean value and mean absolute error [3]; the errors [B] of the values.

        Raises:
            ValueError: An array does not fit. Nothing has changed then.
        """
        return self._native.gradient(self._columns(batch), double, huber, self.threads)

    def step(
        self,
        batch: Any,
        *,
        double: bool = True,
        huber: bool = True,
        max_grad_norm: float = np.inf,
        tau: float = 1.0,
    ) -> tuple[Numbers, Floats]:
        """One step of the network, and of its slow copy where `tau` is below 1.

        Args:
            batch: What to learn from.
            double: Let the online network choose the action that the target network values.
            huber: The Huber loss, otherwise the square.
            max_grad_norm: Longest gradient.
            tau: Share of the new weights that the slow copy takes; 1 leaves it as it is.

        Returns:
            Loss, mean value, mean absolute error and norm of the gradient [4]; the errors [B].

        Raises:
            ValueError: An array does not fit. Nothing has changed then.
        """
        return self._native.step(
            self._columns(batch), double, huber, max_grad_norm, tau, self.threads
        )

    def _columns(self, batch: Any) -> tuple[Any, ...]:
        allowed = batch.next_masks
        if allowed is not None and allowed.shape[1] < self._n_options:  # of bits: 0 always is
            allowed = np.stack((np.ones_like(allowed), allowed), -1).reshape(len(allowed), -1)
        return (
            rows_of(batch.obs),
            batch.actions,
            batch.rewards,
            rows_of(batch.next_obs),
            batch.discounts,
            batch.weights,
            allowed,
        )
