"""On-policy agents in native code: what stands where a torch module stands elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave import _native
from sharpwave.envs import ActionMap, VecNormalize
from sharpwave.learn import (
    Adam,
    Draws,
    FlatArrays,
    PolicyLayout,
    PolicyLearner,
    RMSprop,
    features_of,
)
from sharpwave.train.actor import NormalizedPlayer
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.types import Array, Nested

Flags = npt.NDArray[np.bool_]
Metrics = dict[str, float]


class NativePolicy:
    """An actor and a critic that learn and act without torch.

    Args:
        observation_space: A space that `learn.why_not_native` has nothing against.
        action_space: Likewise.
        layout: The networks for these spaces.
        flat: Their parameters.
        draws: Where random numbers come from.
        threads: Most threads of an update.

    Attributes:
        flat: The parameters and their gradient.
        learner: What computes on them.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        layout: PolicyLayout,
        flat: FlatArrays,
        *,
        draws: Draws,
        threads: int,
    ) -> None:
        self.flat = flat
        self.learner = PolicyLearner(layout, flat.data, flat.grad, threads=threads)
        self._draws = draws
        self._features = features_of(observation_space)
        self._one_choice = isinstance(action_space, spaces.Discrete)

    def act(
        self, obs: Nested, masks: Flags | None, draw: tuple[int, int] | None
    ) -> tuple[Array, Array, Array]:
        """Raw actions, their log-probabilities and values, as `PolicyLearner.act`."""
        actions, log_probs, values = self.learner.act(self._features(obs), masks, draw)
        return actions[:, 0] if self._one_choice else actions, log_probs, values

    def values(self, obs: Nested) -> Array:
        """Values [N] of observations [N, ...]."""
        return self.learner.values(self._features(obs))

    def ppo_update(
        self, batch: OnPolicyBatch, adam: Adam, *, n_epochs: int, **options: Any
    ) -> Metrics:
        """`n_epochs` passes over a batch; the options are those of `PolicyLearner.ppo_update`."""
        rows = self._rows(batch)
        orders = self.orders(n_epochs, len(rows["obs"]))
        return self.learner.ppo_update(rows, orders, adam, **options)

    def a2c_update(self, batch: OnPolicyBatch, rmsprop: RMSprop, **options: Any) -> Metrics:
        """One step on a batch; the options are those of `PolicyLearner.a2c_update`."""
        return self.learner.a2c_update(self._rows(batch), rmsprop, **options)

    def orders(self, n_orders: int, n: int) -> npt.NDArray[np.int64]:
        """[n_orders, n] orders of so many rows."""
        return _native.shuffled(*self._draws.next_call(), n_orders, n)

    def _rows(self, batch: OnPolicyBatch) -> dict[str, Any]:
        return {**vars(batch), "obs": self._features(batch.obs)}


class NativeActor(NormalizedPlayer):
    """Chooses the actions of a rollout, or plays, with a native policy.

    Args:
        policy: What chooses.
        draws: Where samples come from; None takes the most likely actions.
        normalizer: Applied to observations that were not normalised by the environment.
        action_map: From the policy's actions to the environment's, for `play`.
    """

    state: None = None
    """It has no memory."""

    def __init__(
        self,
        policy: NativePolicy,
        draws: Draws | None,
        *,
        normalizer: VecNormalize | None = None,
        action_map: ActionMap | None = None,
    ) -> None:
        super().__init__(normalizer, action_map)
        self._policy = policy
        self._draws = draws

    def begin_rollout(self) -> None:
        """Nothing to prepare."""

    def act(self, obs: Nested, starts: Flags, masks: Flags | None) -> tuple[Array, Array, Array]:  # noqa: ARG002
        """(actions, log_probs, values) for observations [N, ...]."""
        draw = None if self._draws is None else self._draws.next_call()
        return self._policy.act(obs, masks, draw)

    def values(self, obs: Nested, rows: npt.NDArray[np.intp] | None = None) -> Array:  # noqa: ARG002
        """Values [N] of what comes after the last `act`."""
        return self._policy.values(obs)
