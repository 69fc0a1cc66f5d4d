"""Steps of teams for a replay buffer."""

from __future__ import annotations

from typing import Any

from sharpwave.collect.off_policy import OffPolicyCollector
from sharpwave.collect.team_episodes import TeamStats
from sharpwave.envs import Step

__all__ = ["TeamReplayCollector"]


class TeamReplayCollector(OffPolicyCollector):
    """Steps a `JointVectorEnv`, and counts the returns of every agent.

    Args:
        env: A `JointVectorEnv`.
        seed: Of the first reset.
    """

    episodes: TeamStats

    def __init__(self, env: Any, seed: int | None) -> None:
        super().__init__(env, seed)
        self.episodes = TeamStats(env.num_envs, env.env.groups)

    def _count_episodes(self, step: Step) -> None:
        self.episodes.update_agents(step.infos["agent_rewards"], self.stepper.ended, step.valid)

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool) -> None:
        """Continue from `state_dict`; see `CollectorState`."""
        super().load_state_dict(state, in_flight=in_flight)
        if self.obs is not None:
            self.env.go_on(self.obs)
