"""The compiled twin of SAC."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.replay import actor_critic_layouts
from sharpwave.learners.devices import native_threads
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.native.actor_critic import SACSteps, SquashedActor
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam

__all__ = ["NativeSACLearner"]

METRICS = ("critic_loss", "actor_loss", "alpha", "alpha_loss", "entropy", "q_value")
"""Measurements of a step, in order."""


class NativeSACLearner(NativeLearner):
    """SAC for multi-layer perceptrons on the CPU."""

    not_known = ("use_gsde",)

    def build(self) -> None:
        """Make actor, critics, their target networks and the entropy coefficient."""
        config = self.config
        self._layouts = actor_critic_layouts(
            self.observation_space,
            self.action_dim,
            hidden=config.hidden_of("actor"),
            critic_hidden=config.hidden_of("critic"),
            activation=config.activation,
            n_critics=config.n_critics,
            outputs_per_action=2,
        )
        adam = partial(Adam, lr=0.0, eps=1e-8)
        first = (layout.first_parameters(self.weights_generator) for layout in self._layouts)
        self.add("actor", next(first), adam)
        critics = self.add("critics", next(first), adam)
        targets = self.add("target_critics", critics.copy())
        temperature = self.add("temperature", FlatArrays({"value": ()}), adam)
        temperature.data[:] = math.log(max(config.first_alpha, 1e-12))
        self.steps = SACSteps(
            *self._layouts,
            actor=self.memory("actor"),
            critics=self.memory("critics"),
            temperature=self.memory("temperature"),
            targets=targets,
            features=self.features,
            threads=native_threads(config.threads, len(critics.data) * config.batch_size),
        )

    def make_actor(self, flat: FlatArrays) -> SquashedActor:
        """The policy with the parameters of the actor."""
        return SquashedActor(self._layouts[0], flat)

    def act(self, obs: Any, *, explore: bool, **_: Any) -> Acted:
        """Actions in [-1, 1]: samples of the policy, or its mode."""
        if explore:
            return Acted(self.actor.explore(obs, self.explore_generator.next_call()))
        return Acted(self.actor.mode(obs))

    def update(self, batch: Any, noise: Any = None) -> Metrics:
        """One gradient step of the entropy coefficient, of the critics and of the actor.

        Args:
            batch: A `ReplayBatch` of arrays.
            noise: [2, B, d] takes the place of drawn numbers.
        """
        config = self.config
        moves_targets = (self.updates + 1) % config.target_update_interval == 0
        wanted = -float(self.action_dim) if config.target_entropy is None else config.target_entropy
        measured, td_errors = self.steps.step(
            batch,
            draw=self.generator.next_call(),
            noise=noise,
            alpha=None if config.learns_alpha else config.first_alpha,
            target_entropy=wanted,
            max_grad_norm=config.max_grad_norm,
            tau=config.tau if moves_targets else 0.0,
        )
        self.updates += 1
        return {**dict(zip(METRICS, np.asarray(measured), strict=True)), "td_errors": td_errors}
