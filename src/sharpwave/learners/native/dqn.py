"""The compiled twin of DQN."""

from __future__ import annotations

from functools import partial
from typing import Any

from gymnasium import spaces

from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.replay import QLayout
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam
from sharpwave.learners.native.q_learning import QActor, QSteps
from sharpwave.learners.q_schedule import QSchedule
from sharpwave.learners.threads import native_threads

__all__ = ["NativeDQNLearner"]

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
