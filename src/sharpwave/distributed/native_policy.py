"""Policy inference in native code with a flat vector of weights, without torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sharpwave import _native
from sharpwave.core.draws import Draws
from sharpwave.distributed.fleet import Weights
from sharpwave.envs import ActionMap
from sharpwave.layouts.features import features_of
from sharpwave.layouts.parameters import aligned_zeros
from sharpwave.layouts.policy import PolicyLayout

__all__ = ["NativePolicy"]


class Chosen(NamedTuple):
    """Actions [N, ...] with their log-probabilities [N] and the values [N]."""

    actions: Any
    log_probs: Any
    values: Any
    extra: None = None


class NativePolicy:
    """A multi-layer perceptron that acts in environments of Python.

    Args:
        layout: Layout of the networks.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        seed: Seed of the actions.

    Attributes:
        action_map: Maps its actions to those of the environments.
    """

    def __init__(
        self,
        layout: PolicyLayout,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> None:
        self.action_map = ActionMap(action_space)
        self._is_discrete = isinstance(action_space, spaces.Discrete)
        self._features = features_of(observation_space)
        self._weights = aligned_zeros(layout.n_parameters)
        self._draws = Draws(seed)
        self._native = _native.PolicyLearner(
            layout.n_inputs,
            layout.hidden,
            layout.critic_hidden,
            layout.activation,
            layout.actions,
            layout.options,
            self._weights,
            aligned_zeros(layout.n_parameters),
        )

    def act(self, obs: Any, starts: Any, masks: Any) -> Chosen:  # noqa: ARG002 - no memory
        """Sample actions for observations [N, ...]."""
        drawn = self._native.act(self._features(obs), masks, self._draws.next_call())
        actions, log_probs, values = drawn
        return Chosen(actions[:, 0] if self._is_discrete else actions, log_probs, values)

    def values(self, obs: Any, rows: Any = None) -> Any:  # noqa: ARG002
        """Values [N] of observations [N, ...]."""
        return self._native.values(self._features(obs))

    def memory(self) -> None:
        """None: it has no recurrent state."""

    def follow_weights(self, weights: Weights) -> None:
        """Act with these weights, from the next unroll on."""
        np.copyto(self._weights, weights)

    def state_dict(self) -> dict[str, Any]:
        """State of its random generator, without the weights."""
        return {"kind": "native", "generator": self._draws.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`; generators of another kind begin anew."""
        if state.get("kind") == "native":
            self._draws.set_state(state["generator"])
