"""The loop of several groups of agents that learn from their own latest rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharpwave.collect.joint import JointView
from sharpwave.collect.multi_agent import MultiAgentCollector
from sharpwave.collect.native_teams import NativeTeamRollouts
from sharpwave.learners import Seeds
from sharpwave.learners.batch import GroupBatch
from sharpwave.learners.devices import native_threads
from sharpwave.learners.groups import GroupLearners
from sharpwave.loops.rollouts import RolloutLoop

__all__ = ["MultiAgentLoop"]


class MultiAgentLoop(RolloutLoop):
    """Collects a rollout of every group, learns from them, and throws them away.

    Args:
        learner: The learners of the groups.
        config: Options.
        env: A `MultiAgentVectorEnv`.
        seeds: Of environments and actions.
        subject: The environments, in words.
        joint: The input of the critics.
        actors: The actor of each group.
        teams: The groups whose mean reward pays each group, where a team is paid.

    Attributes:
        collection_reason: Why native code does not collect whole rollouts; None when it does.
    """

    seeds = staticmethod(Seeds.of)
    learner: GroupLearners

    def __init__(
        self,
        learner: GroupLearners,
        config: Any,
        env: Any,
        *,
        seeds: Seeds,
        subject: str,
        joint: JointView,
        actors: Mapping[str, Any],
        teams: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(learner, config, env, subject)
        self.actors = dict(actors)
        self.collection_reason = NativeTeamRollouts.why_not(env, learner)
        self.collector: Any = self._make_collector(seeds, joint, teams)

    def _make_collector(self, seeds: Seeds, joint: JointView, teams: Any) -> Any:
        config, env = self.config, self.env
        if self.collection_reason is not None:
            return MultiAgentCollector(
                env,
                self.actors,
                n_steps=config.n_steps,
                seed=seeds.env,
                joint=joint,
                team_reward=config.team_reward,
                teams=teams,
            )
        (member,) = self.learner.members.values()
        weights = member.block
        return NativeTeamRollouts(
            env,
            weights,
            moments=member.value_moments,
            hidden=member.config.hidden_of("actor"),
            critic_hidden=member.config.hidden_of("critic"),
            activation=member.config.activation,
            critic_input=joint.kind,
            agent_id=config.agent_id,
            team_reward=config.team_reward,
            n_steps=config.n_steps,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            seed=seeds.env,
            action_seed=seeds.learning,
            threads=native_threads(config.threads, weights.size * config.n_envs * len(env.agents)),
        )

    @classmethod
    def of(
        cls, agent: Any, learner: GroupLearners, joint: JointView, actors: Mapping[str, Any]
    ) -> MultiAgentLoop:
        """The loop of an agent around the learners of its groups."""
        n_agents = len(agent.env.agents)
        name = agent.env_id or "an environment without an id"
        return cls(
            learner,
            agent.own_config,
            agent.env,
            seeds=learner.seeds,
            subject=f"{agent.config.n_envs} x {name} with {n_agents} agents",
            joint=joint,
            actors=actors,
            teams=agent.teams,
        )

    def progress_metrics(self) -> dict[str, float]:
        """Returns and lengths of the last episodes: of the team, of each group and agent."""
        metrics: dict[str, float] = self.collector.episodes.metrics()
        return metrics

    def collect(self, on_step: Any = None) -> dict[str, GroupBatch] | None:
        """One rollout of each group that learns and acted, as its learner takes it.

        Args:
            on_step: Called after every step; False gives up the rollout.

        Returns:
            The rollouts by group, which the next ones may overwrite, or None if given up.
        """
        for actor in self.actors.values():
            actor.begin_rollout()
        states = {name: actor.state for name, actor in self.actors.items()}
        before = self.collector.timesteps
        rollouts = self.collector.collect(self.config.gamma, self.config.gae_lambda, on_step)
        if not self._count(before, is_whole=rollouts is not None):
            return None
        batches = {}
        for name, member in self.learner.learning.items():
            if not rollouts[name].valid.any():
                continue
            columns = self.collector.columns(name, sequences=states[name] is not None)
            batches[name] = GroupBatch.of(columns, member.own, states[name])
        return batches  # type: ignore[return-value]

    def state_dict(self) -> dict[str, Any]:
        """State of the collection of rollouts, with the recurrent states."""
        memories = {name: actor.state for name, actor in self.actors.items()}
        return {"recurrent_states": memories, **super().state_dict()}

    def _load_memory(self, state: dict[str, Any]) -> None:
        for name, memory in state["recurrent_states"].items():
            if memory is not None:
                self.actors[name].state = self.learner[name].own(memory)
