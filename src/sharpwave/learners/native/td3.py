"""The compiled twins of TD3, DDPG and TD3+BC."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sharpwave import _native
from sharpwave.layouts.parameters import FlatArrays
from sharpwave.layouts.replay import actor_critic_layouts
from sharpwave.learners.devices import native_threads
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.native.actor_critic import DeterministicActor, TD3Steps
from sharpwave.learners.native.learner import NativeLearner
from sharpwave.learners.native.optimizers import Adam
from sharpwave.learners.noise import OrnsteinUhlenbeck

__all__ = ["NativeTD3BCLearner", "NativeTD3Learner"]

METRICS = ("critic_loss", "actor_loss", "q_value")
"""Measurements of a step, in order."""


class NativeTD3Learner(NativeLearner):
    """TD3 for multi-layer perceptrons on the CPU."""

    is_random = False

    def build(self) -> None:
        """Make actor, critics, and a target network of each."""
        config = self.config
        self._layouts = actor_critic_layouts(
            self.observation_space,
            self.action_dim,
            hidden=config.hidden_of("actor"),
            critic_hidden=config.hidden_of("critic"),
            activation=config.activation,
            n_critics=getattr(config, "n_critics", 2),
            outputs_per_action=1,
        )
        adam = partial(Adam, lr=0.0, eps=1e-8)
        first = (layout.first_parameters(self.weights_generator) for layout in self._layouts)
        actor = self.add("actor", next(first), adam)
        critics = self.add("critics", next(first), adam)
        self.steps = TD3Steps(
            *self._layouts,
            actor=self.memory("actor"),
            critics=self.memory("critics"),
            target_actor=self.add("target_actor", actor.copy()),
            target_critics=self.add("target_critics", critics.copy()),
            features=self.features,
            threads=native_threads(config.threads, len(critics.data) * config.batch_size),
        )
        self.last_actor_loss = 0.0

    def make_actor(self, flat: FlatArrays) -> DeterministicActor:
        """The policy with the parameters of the actor."""
        return DeterministicActor(self._layouts[0], flat)

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, **_: Any
    ) -> Acted:
        """Actions in [-1, 1], with noise to explore."""
        if not explore:
            return Acted(self.actor.mode(obs), state=state)
        draw = self.explore_generator.next_call()
        if state is None:
            return Acted(self.actor.explore(obs, self.config.exploration_noise, draw))
        actions = self.actor.mode(obs)
        seed, call = draw
        drawn = _native.normals(seed, call, actions.size).reshape(actions.shape)
        return Acted(np.clip(actions + state.move(starts, drawn), -1.0, 1.0), state=state)

    def initial_state(self, n_envs: int) -> OrnsteinUhlenbeck | None:
        """An Ornstein-Uhlenbeck process for each environment, where noise is of that type."""
        if self.config.noise_type != "ou":
            return None
        zeros = np.zeros((n_envs, self.action_dim), np.float32)
        return OrnsteinUhlenbeck(zeros, self.config.exploration_noise)

    def update(self, batch: Any, noise: Any = None) -> Metrics:
        """One step of the critics, and of the rest where it is due.

        Args:
            batch: A `ReplayBatch` of arrays.
            noise: [B, d] takes the place of drawn numbers.
        """
        config = self.config
        moves_actor = (self.updates + 1) % config.policy_delay == 0
        measured, td_errors = self.steps.step(
            batch,
            draw=self.generator.next_call(),
            noise=noise,
            target_noise=config.target_noise,
            noise_clip=config.noise_clip,
            tau=config.tau,
            moves_actor=moves_actor,
            max_grad_norm=getattr(config, "max_grad_norm", None),
            bc_weight=self.cloning,
        )
        metrics = dict(zip(METRICS, np.asarray(measured), strict=True))
        if moves_actor:
            self.last_actor_loss = float(metrics["actor_loss"])
        self.updates += 1
        return {**metrics, "actor_loss": self.last_actor_loss, "td_errors": td_errors}

    @property
    def cloning(self) -> float | None:
        """Weight α of the Q-values against behavior cloning; None leaves cloning out."""
        return None

    def extra_state(self) -> dict[str, Any]:
        """The last loss of the actor."""
        return {"actor_loss": np.array(self.last_actor_loss, np.float32)}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.last_actor_loss = float(state["actor_loss"])


class NativeTD3BCLearner(NativeTD3Learner):
    """TD3+BC for multi-layer perceptrons on the CPU."""

    @property
    def cloning(self) -> float | None:
        """Weight α of the Q-values against behavior cloning."""
        alpha: float = self.config.alpha
        return alpha
