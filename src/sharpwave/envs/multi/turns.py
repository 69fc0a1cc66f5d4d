"""Environments whose agents act one after the other, in the parallel form of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sharpwave.core.optional import require

__all__ = ["TurnBased", "as_parallel"]


def as_parallel(env: Any) -> Any:
    """An environment in PettingZoo's parallel form.

    One whose agents take turns (AEC) goes through PettingZoo's `aec_to_parallel` where it declares
    that nothing happens before all have acted, and is taken turn by turn otherwise.

    Raises:
        TypeError: `env` is no multi-agent environment.
        ImportError: PettingZoo is needed and not installed.
    """
    if callable(getattr(env, "observe", None)) and callable(getattr(env, "agent_iter", None)):
        if (getattr(env, "metadata", None) or {}).get("is_parallelizable"):
            return require("pettingzoo.utils.conversions", extra="multi").aec_to_parallel(env)
        return TurnBased(env)
    wanted = ("reset", "step", "observation_space", "action_space")
    if all(callable(getattr(env, name, None)) for name in wanted):
        return env
    raise TypeError(
        "env must make a PettingZoo environment, parallel or AEC, "
        f"got {type(env).__module__}.{type(env).__qualname__}"
    )


class TurnBased:
    """An environment whose agents take turns, with a step for every turn.

    `step` takes the action of the agent whose turn it is, and tells of all agents: what each
    observes now, and the rewards and ends that this action brought.

    Args:
        env: With PettingZoo's AEC interface.

    Attributes:
        aec_env: The environment.
        agents: Those in play, also while they wait.
        acting: The agent whose turn it is; nobody after the end.
    """

    def __init__(self, env: Any) -> None:
        self.aec_env = env
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = env.possible_agents
        self.agents: list[Any] = []
        self.acting: list[Any] = []
        self._over: set[Any] = set()

    def observation_space(self, agent: Any) -> Any:
        """The observation space of one agent."""
        return self.aec_env.observation_space(agent)

    def action_space(self, agent: Any) -> Any:
        """The action space of one agent."""
        return self.aec_env.action_space(agent)

    @property
    def state_space(self) -> Any:
        """The space of the state; None if it is not declared."""
        return getattr(self.aec_env, "state_space", None)

    def state(self) -> Any:
        """The state of the environment."""
        return self.aec_env.state()

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode: observations and infos of all agents."""
        self.aec_env.reset(seed=seed, options=options)
        self._over = set()
        self.find_turn()
        return self._observed(), dict(self.aec_env.infos)

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Step the environment with the action of the agent whose turn it is."""
        env = self.aec_env
        (agent,) = self.acting
        env.step(actions[agent])
        obs, players = self._observed(), [x for x in env.agents if x not in self._over]
        # The dead are taken away below, which clears the rewards.
        rewards, terminated, truncated, infos = (
            {x: told[x] for x in players}
            for told in (env.rewards, env.terminations, env.truncations, env.infos)
        )
        self._over |= {x for x in players if terminated[x] or truncated[x]}
        if self.find_turn():  # what an agent may do depends on whose turn it is
            obs.update(self._observed())
        return obs, rewards, terminated, truncated, infos

    def find_turn(self) -> bool:
        """Find who acts next; True where dead agents had to be taken away before."""
        env = self.aec_env
        before = len(env.agents)
        while env.agents and env.agent_selection in self._over:
            env.step(None)
        self.agents = [agent for agent in env.agents if agent not in self._over]
        self.acting = [env.agent_selection] if self.agents else []
        return len(env.agents) < before

    def go_on(self, over: set[Any]) -> None:
        """Go on within an episode, some of whose agents are dead."""
        self._over = set(over)
        self.find_turn()

    def render(self) -> Any:
        """The environment's frame."""
        return self.aec_env.render()

    def close(self) -> None:
        """Close the environment."""
        self.aec_env.close()

    def _observed(self) -> dict[Any, Any]:
        env = self.aec_env
        return {agent: env.observe(agent) for agent in env.agents if agent not in self._over}
