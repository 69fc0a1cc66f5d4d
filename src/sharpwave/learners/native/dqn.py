"""The compiled twin of DQN: its gradient steps, and acting by values."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave import _native
from sharpwave.layouts.features import Features, flat
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.replay import QLayout
from sharpwave.learners.devices import native_threads
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam, memory_of
from sharpwave.learners.q_schedule import QSchedule
from sharpwave.types import Doubles, Floats, Integers

__all__ = ["NativeDQNLearner", "QActor", "QSteps"]


class QSteps:
    """The gradient steps of DQN for multi-layer perceptrons on the CPU.

    It does what `DQNLearner.update` does with torch. Results do not depend on the number of
    threads.

    A batch is a `ReplayBatch` of arrays or CPU tensors.

    Args:
        layout: The network.
        online: Its parameters; changed by steps.
        adam: The optimizer of the parameters.
        target: Parameters of the target network.
        features: From observations to the inputs of the network.
        threads: Most threads of a step.

    Raises:
        ValueError: The arrays do not fit.

    Example:
        >>> from sharpwave.learners.replay import ReplayBatch
        >>> layout = QLayout(n_inputs=1, hidden=(), activation="relu", choices=(2,))
        >>> online, target = FlatArrays(layout.shapes), FlatArrays(layout.shapes)
        >>> learner = QSteps(layout, online, Adam(online, lr=0.001), target)
        >>> one = np.ones(1, np.float32)
        >>> batch = ReplayBatch(one[:, None], np.array([1]), one, one[:, None], one)
        >>> metrics, errors = learner.step(batch)
        >>> metrics.round(3).tolist(), errors.tolist()
        ([0.5, 0.0, 1.0, 1.414], [-1.0])
        >>> online.data.round(3)
        array([0.   , 0.001, 0.   , 0.001], dtype=float32)
    """

    def __init__(
        self,
        layout: QLayout,
        online: FlatArrays,
        adam: Adam,
        target: FlatArrays,
        *,
        features: Features = flat,
        threads: int = 1,
    ) -> None:
        self.threads = threads
        self._features = features
        self._n_options = sum(layout.choices)
        self._native = _native.QLearner(*_form(layout), memory_of(online, adam), target.data)

    def gradient(
        self, batch: Any, *, double: bool = True, huber: bool = True
    ) -> tuple[Doubles, Floats]:
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
        max_grad_norm: float | None = None,
        tau: float = 1.0,
    ) -> tuple[Doubles, Floats]:
        """One gradient step, and a Polyak update of the target network where `tau` is below 1.

        Args:
            batch: What to learn from.
            double: Let the online network choose the action that the target network values.
            huber: The Huber loss, otherwise the square.
            max_grad_norm: Maximum norm of the gradient.
            tau: Polyak coefficient of the target network; 1 leaves it as it is.

        Returns:
            Loss, mean value, mean absolute error and norm of the gradient [4]; the errors [B].

        Raises:
            ValueError: An array does not fit. Nothing has changed then.
        """
        longest = np.inf if max_grad_norm is None else max_grad_norm
        return self._native.step(self._columns(batch), double, huber, longest, tau, self.threads)

    def _columns(self, batch: Any) -> tuple[Any, ...]:
        return (
            self._features(batch.obs),
            batch.actions,
            batch.rewards,
            self._features(batch.next_obs),
            batch.discounts,
            batch.weights,
            _options(batch.next_masks, self._n_options),
        )


class QActor:
    """Acts by the values of a network.

    Args:
        layout: The network.
        parameters: Its parameters; later changes count.

    Example:
        >>> layout = QLayout(n_inputs=1, hidden=(), activation="relu", choices=(2,))
        >>> parameters = FlatArrays(layout.shapes)
        >>> parameters["net.0.bias"][:] = [0.0, 1.0]
        >>> actor, obs = QActor(layout, parameters), np.zeros((3, 1), np.float32)
        >>> actor.act(obs).tolist()
        [[1], [1], [1]]
        >>> actor.explore(obs, epsilon=1.0, draw=(0, 0)).shape
        (3, 1)
    """

    def __init__(self, layout: QLayout, parameters: FlatArrays) -> None:
        self._n_options = sum(layout.choices)
        self._native = _native.QActor(*_form(layout), parameters.data)

    def act(self, obs: Any, masks: Any = None) -> Integers:
        """The best actions [B, n_choices], each from 0 on.

        Args:
            obs: [B, n_inputs].
            masks: [B, n_options] true where allowed, [B, n_bits] for bits; None allows all.
        """
        return self._native.best(obs, _options(masks, self._n_options))

    def explore(
        self, obs: Any, masks: Any = None, *, epsilon: float, draw: tuple[int, int]
    ) -> Integers:
        """The same, or with chance ε random ones that are allowed.

        Args:
            obs: [B, n_inputs].
            masks: [B, n_options] true where allowed, [B, n_bits] for bits; None allows all.
            epsilon: ε.
            draw: What `Draws.next_call` gave.
        """
        return self._native.explore(obs, _options(masks, self._n_options), epsilon, *draw)


def _form(layout: QLayout) -> tuple[int, list[int], str, list[int], bool]:
    choices = list(layout.choices)
    return layout.n_inputs, list(layout.hidden), layout.activation, choices, layout.dueling


def _options(masks: Any, n_options: int) -> Any:
    """Mask of all options from the masks of actions: of binary actions, 0 is always allowed."""
    if masks is None or 2 * masks.shape[1] != n_options:
        return masks
    return np.stack((np.ones_like(masks), masks), -1).reshape(len(masks), -1)


METRICS = ("loss", "q_value", "td_error", "grad_norm")
"""Measurements of a step, in order."""


class NativeDQNLearner(QSchedule, NativeLearner):
    """DQN for multi-layer perceptrons on the CPU."""

    acting = "q_network"
    not_known = ("noisy",)

    def build(self) -> None:
        """Make the network, its target network, and Adam over its parameters."""
        config = self.config
        self._layout = QLayout.of(
            self.observation_space,
            self.action_space,
            hidden=config.hidden_of("actor"),
            activation=config.activation,
            dueling=config.dueling,
        )
        adam = partial(Adam, lr=0.0, eps=config.adam_eps)
        flat = self.add("q_network", self._layout.first_parameters(self.weights_generator), adam)
        self.steps = QSteps(
            self._layout,
            *self.memory("q_network"),
            self.add("target", flat.copy()),
            features=self.features,
            threads=native_threads(config.threads, len(flat.data) * config.batch_size),
        )

    def make_actor(self, flat: FlatArrays) -> QActor:
        """The actor with the parameters of the network."""
        return QActor(self._layout, flat)

    def act(self, obs: Any, *, explore: bool, masks: Any = None, **_: Any) -> Acted:
        """Greedy actions, or with probability ε random ones."""
        if explore:
            draw = self.explore_generator.next_call()
            choices = self.actor.explore(obs, masks, epsilon=self.epsilon, draw=draw)
        else:
            choices = self.actor.act(obs, masks)
        return Acted(choices[:, 0] if isinstance(self.action_space, spaces.Discrete) else choices)

    def update(self, batch: Any) -> Metrics:
        """One gradient step on a batch of arrays, and where due an update of the target network."""
        config = self.config
        if self.copies_target():
            self.networks["target"].data[:] = self.networks["q_network"].data
            self.target_copied_at = self.steps_lived()
        measured, td_errors = self.steps.step(
            batch,
            double=config.double_dqn,
            huber=config.loss == "huber",
            max_grad_norm=config.max_grad_norm,
            tau=config.tau,
        )
        self.updates += 1
        return {**dict(zip(METRICS, measured, strict=True)), "td_errors": td_errors}
