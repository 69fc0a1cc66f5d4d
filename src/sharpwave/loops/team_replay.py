"""The loop of learners of teams that learn from replay."""

from __future__ import annotations

from typing import Any

from sharpwave.collect.team_replay import TeamReplayCollector
from sharpwave.learners import Seeds
from sharpwave.loops.off_policy import OffPolicyLoop

__all__ = ["TeamReplayLoop"]


class TeamReplayLoop(OffPolicyLoop):
    """Collects steps of all agents of a `JointVectorEnv` into a buffer, and learns from batches."""

    @classmethod
    def of(cls, agent: Any, choice: Any) -> TeamReplayLoop:
        """The loop of an agent around the learner that was chosen."""
        n_agents = len(agent.env.agents)
        name = agent.env_id or "an environment without an id"
        return cls(
            choice.learner,
            agent.own_config,
            agent.joint_env,
            seeds=choice.learner.seeds,
            subject=f"{agent.config.n_envs} x {name} with {n_agents} agents",
            buffer=agent.given_buffer,
        )

    def _make_collector(self, seeds: Seeds, buffer: Any) -> Any:  # noqa: ARG002
        return TeamReplayCollector(self.env, seeds.env)

    def progress_metrics(self) -> dict[str, float]:
        """Measures of the last episodes, of the team, each group and agent; gradient steps."""
        return {**super().progress_metrics(), **self.collector.episodes.metrics()}
