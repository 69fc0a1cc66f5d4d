"""The loop of learners that learn from their own latest rollout."""

from __future__ import annotations

from typing import Any

from sharpwave.collect import NativeRollouts, OnPolicyCollector
from sharpwave.envs import TensorVectorEnv, autoreset_mode
from sharpwave.learners import Seeds
from sharpwave.learners.actor import RolloutActor
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.columns import declared_columns
from sharpwave.learners.devices import native_threads
from sharpwave.loops.rollouts import RolloutLoop
from sharpwave.loops.source import find_normalizer
from sharpwave.tensors import (
    GraphedRollouts,
    HostSteps,
    IntrinsicSteps,
    TensorCollector,
    TensorSteps,
)

__all__ = ["OnPolicyLoop"]

COLLECTED = ("act", "values", "begin_rollout")
"""Methods of a learner that native collection stands for."""


class OnPolicyLoop(RolloutLoop):
    """Collects a rollout with the current policy, learns from it, and throws it away.

    Args:
        learner: The learner, which acts too.
        config: Options.
        env: A vector environment, normalized where it should be.
        seeds: Of environments and actions.
        subject: The environments, in words.
        why_not_act: Why native code cannot act for the policy; None when it can.

    Attributes:
        actor: The learner at work in the environments.
        collector: The collector that steps them.
        collection_reason: Why native code does not collect whole rollouts; None when it does.
    """

    seeds = staticmethod(Seeds.of)

    def __init__(
        self,
        learner: Any,
        config: Any,
        env: Any,
        *,
        seeds: Seeds,
        subject: str,
        why_not_act: str | None,
    ) -> None:
        super().__init__(learner, config, env, subject)
        if not self.ranks.is_alone and autoreset_mode(env) == "next_step":
            raise ValueError(
                f"env must reset in the step that ends an episode where {self.ranks.size} learners "
                "divide minibatches, got autoreset mode next_step"
            )
        columns = declared_columns(learner)
        self._normalizer = find_normalizer(env)
        self.actor = RolloutActor(learner, config.n_envs, explore=True, columns=columns)
        self.collection_reason = why_not_act or NativeRollouts.why_not(env)
        self._intrinsic: IntrinsicSteps | None = None
        self.collector: Any = self._make_collector(seeds)

    def progress_metrics(self) -> dict[str, float]:
        """Returns and lengths of the last episodes, and returns of what the learner added."""
        metrics = super().progress_metrics()
        if self._intrinsic is None:
            return metrics
        return {**metrics, "mean_intrinsic_return": self._intrinsic.episodes.mean_return}

    @classmethod
    def of(cls, agent: Any, choice: Any) -> OnPolicyLoop:
        """The loop of an agent around the learner that was chosen."""
        return cls(
            choice.learner,
            agent.own_config,
            agent.env,
            seeds=choice.learner.seeds,
            subject=f"{agent.config.n_envs} x {agent.env_id or 'an environment without an id'}",
            why_not_act=choice.why_not_act,
        )

    def collect(self, on_step: Any = None) -> OnPolicyBatch | None:
        """One rollout, as the learner takes it.

        Args:
            on_step: Called after every step; False gives up the rollout.

        Returns:
            The rollout, which the next one may overwrite, or None if it was given up.

        Raises:
            RuntimeError: A method was assigned to the learner that native collection does not call.
        """
        self._check_collected()
        self.actor.begin_rollout()
        state = self.actor.state
        before = self.collector.timesteps
        rollout = self.collector.collect(self.config.gamma, self.config.gae_lambda, on_step)
        if not self._count(before, is_whole=rollout is not None):
            return None
        columns = self.collector.columns(rollout, sequences=state is not None)
        return OnPolicyBatch.of(columns, self.learner.own, state)

    def _meet(self) -> None:
        super()._meet()
        if self._normalizer is not None and not self.ranks.is_alone:
            self._normalizer.merge_over(self.ranks.gather)

    def _check_collected(self) -> None:
        """Raise where a method was assigned to the learner that native collection does not call."""
        if self.collection_reason is None:
            self._check_not_assigned()

    def _check_not_assigned(self) -> None:
        for name in vars(self.learner).keys() & {*COLLECTED}:
            raise RuntimeError(
                f"{name} of the learner is not called, since native code collects: change it "
                "in a subclass, and pass that as `learner=`"
            )

    def _make_collector(self, seeds: Seeds) -> Any:
        config = self.config
        overlap = getattr(config, "overlap", False)
        if self.collection_reason is not None:
            if overlap:
                raise ValueError(f"overlap must be False: {self.collection_reason}")
            return self._make_stepping_collector(seeds)
        weights = self.learner.block
        return NativeRollouts(
            self.env,
            weights,
            hidden=config.hidden_of("actor"),
            critic_hidden=config.hidden_of("critic"),
            activation=config.activation,
            n_steps=config.n_steps,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            seed=seeds.env,
            action_seed=seeds.learning,
            threads=native_threads(config.threads, weights.size * config.n_envs),
            overlap=overlap,
        )

    def _make_stepping_collector(self, seeds: Seeds) -> Any:
        config, env, learner = self.config, self.env, self.learner
        is_tensors = isinstance(env, TensorVectorEnv)
        adds = learner.rewards_itself
        stays = is_tensors or learner.device_name != "cpu" or adds
        if adds and autoreset_mode(env) == "next_step":
            raise ValueError(
                "env must reset in the step that ends an episode where a learner adds to its "
                "rewards, got autoreset mode next_step"
            )
        if not (stays and learner.takes_tensors) or autoreset_mode(env) == "next_step":
            return OnPolicyCollector(
                env, self.actor, learner.action_map, n_steps=config.n_steps, seed=seeds.env
            )
        is_there = is_tensors and env.device == learner.device
        kind: Any = TensorSteps if is_there else HostSteps
        steps = kind(env, learner.action_map, learner.device)
        if adds:
            steps = self._intrinsic = IntrinsicSteps(steps, learner, config.n_envs)
        collector = TensorCollector(
            steps,
            self.actor,
            n_envs=config.n_envs,
            n_steps=config.n_steps,
            seed=seeds.env,
            device=learner.device,
        )
        if is_there and learner.acts_in_graphs and not adds:
            collector.graphs = GraphedRollouts(collector, learner)
        return collector

    def state_dict(self) -> dict[str, Any]:
        """State of the collection of rollouts, with the recurrent state."""
        state = {"recurrent_state": self.actor.state, **super().state_dict()}
        if self._intrinsic is not None:
            state["intrinsic_episodes"] = self._intrinsic.episodes.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state, in_flight=in_flight, source=source)
        if self._intrinsic is not None and "intrinsic_episodes" in state:
            self._intrinsic.episodes.load_state_dict(state["intrinsic_episodes"])

    def _load_memory(self, state: dict[str, Any]) -> None:
        if state["recurrent_state"] is not None:
            self.actor.state = self.learner.own(state["recurrent_state"])
