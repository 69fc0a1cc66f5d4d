"""The compiled twin of MAPPO and IPPO."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sharpwave.layouts.features import features_of
from sharpwave.layouts.policy import PolicyLayout
from sharpwave.learners.learner import Acted, Learner, Metrics
from sharpwave.learners.native.rollouts import NativePPOLearner
from sharpwave.learners.native.value_norm import ValueNormArrays

if TYPE_CHECKING:
    from sharpwave.collect.joint import GroupView
    from sharpwave.learners.batch import GroupBatch
    from sharpwave.types import Array

__all__ = ["NativeMAPPOLearner"]


class Seen(NamedTuple):
    """Inputs of actors and critic.

    Attributes:
        obs: [B, n_inputs].
        joint: [B, n_critic_inputs], or [N, ...] where N environments have B // N rows each; None
            where the critic has the input `obs`, or none.
    """

    obs: Array
    joint: Array | None


class NativeMAPPOLearner(NativePPOLearner):
    """MAPPO for multi-layer perceptrons on the CPU.

    Args:
        definition: The learner that this is the twin of.
        *args: Of a learner.
        view: The inputs of the actors and the critic of the group.
        **options: Of a learner.
    """

    view: GroupView
    definition: Any

    def __init__(
        self, definition: type[Learner], *args: Any, view: GroupView, **options: Any
    ) -> None:
        vars(self)["view"] = view
        super().__init__(definition, *args, **options)

    def make_layout(self) -> PolicyLayout:
        """The networks: the critic may have more inputs than the actor."""
        return self.layout_of(critic_space=self.view.critic_space)

    def build(self) -> None:
        """Make the parameters, their optimizer, and the normalization of values."""
        super().build()
        self.norm: ValueNormArrays | None = None
        if self.config.value_norm:
            self.norm = ValueNormArrays()
            self.networks["value_norm"] = self.norm  # type: ignore[assignment]
        space = self.view.critic_space
        self._joint_features = None if space is None else features_of(space)

    def define(self) -> Any:
        """The learner that this is the twin of."""
        given = (self.config, self.observation_space, self.action_space)
        return self.definition(*given, seeds=self.seeds, given=self.given, view=self.view)

    def inputs(self, obs: Any) -> Seen:
        """Observations, as `view` gives them, as inputs of the networks."""
        if self.view.is_plain or "joint" not in obs:
            return Seen(self.features(obs), None)
        return Seen(self.features(obs), self._arranged(obs["joint"], obs["agent"]))

    def act(self, obs: Seen, *, explore: bool, masks: Any = None, **_: Any) -> Acted:
        """Actions of the group's agents, with log-probabilities and values."""
        acted = super().act(obs.obs, explore=explore, masks=masks)
        if self._joint_features is None:
            return acted._replace(values=self._denormalized(acted.values))
        if obs.joint is None:
            return acted._replace(values=np.full(len(acted.log_probs), np.nan, np.float32))
        return acted._replace(values=self.values(obs))

    def values(self, obs: Seen, state: Any = None) -> Any:  # noqa: ARG002 - it has no memory
        """Values [B] in the unit of rewards, of all agents of an environment alike."""
        values = self._denormalized(self.actor.values(obs.obs if obs.joint is None else obs.joint))
        every = len(obs.obs) // len(values)
        return values if every == 1 else values.repeat(every)

    def value_moments(self) -> tuple[float, float]:
        """Mean and deviation by which values of the critic are denormalized."""
        return (0.0, 1.0) if self.norm is None else self.norm.moments()

    def update(self, batch: GroupBatch) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps on its minibatches."""
        config, rows = self.config, len(batch.log_probs)
        if config.normalize_advantages == "rollout":
            advantages: Any = _normalized(np.asarray(batch.advantages))
            batch = replace(batch, advantages=advantages)
        size = config.minibatch_of(rows)
        if size >= rows and batch.joint is not None:
            orders = np.broadcast_to(np.arange(rows), (config.n_epochs, rows))
        else:
            orders = self.orders(config.n_epochs, rows)
        metrics = self.descend(self.columns(batch), orders, size)
        self.updates += 1
        return metrics

    def update_options(self) -> dict[str, Any]:
        """Options of an update beside PPO's."""
        config = self.config
        return {
            "normalize": config.normalize_advantages == "minibatch",
            "huber_delta": config.huber_delta if config.value_loss == "huber" else None,
            "value_norm": self.norm,
        }

    def columns(self, batch: Any) -> dict[str, Any]:
        """The columns of a batch by name, as native code takes them."""
        columns = {**vars(batch), "joint": None, "joint_rows": None}
        columns["obs"] = self.features(self.view.inputs(batch.obs, batch.agents, None))
        if self._joint_features is None:
            return columns
        joint, joint_rows = batch.joint, batch.joint_rows
        if self.view.own_first is not None:  # each agent has an order of its own
            joint = joint if joint_rows is None else joint[joint_rows]
            return {**columns, "joint": self._arranged(joint, batch.agents)}
        joint = self._joint_features({"joint": joint})
        return {**columns, "joint": joint, "joint_rows": joint_rows}

    def _arranged(self, joint: Array, agents: Array) -> Array:
        """Inputs of the critic in the order that they have for each agent."""
        assert self._joint_features is not None
        rows = self._joint_features({"joint": joint})
        order = self.view.own_first
        if order is None:
            return rows
        rows = rows.repeat(len(agents) // len(rows), axis=0)
        return np.take_along_axis(rows, order[np.asarray(agents)], axis=1)

    def _denormalized(self, values: Array) -> Array:
        return values if self.norm is None else self.norm.denormalize(values)


def _normalized(advantages: Array) -> Array:
    """Advantages with mean 0 and deviation 1; one alone stays as it is."""
    if len(advantages) == 1:
        return advantages
    rows = advantages.astype(np.float64)
    normalized: Array = (rows - rows.mean()) / (rows.std(ddof=1) + 1e-8)
    return normalized.astype(np.float32)
