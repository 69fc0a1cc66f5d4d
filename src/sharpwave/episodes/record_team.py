"""Recording of multi-agent environments' trajectories as episodes on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave.core.tree import map_leaves
from sharpwave.envs.masks import choices
from sharpwave.envs.multi.vector import MultiAgentVectorEnv, MultiStep
from sharpwave.episodes.buffer import EpisodeBuffer
from sharpwave.episodes.record import UNLIMITED
from sharpwave.episodes.recording import Recording, as_fields
from sharpwave.formats.stream import FINAL_OBS

__all__ = ["RecordTeamEpisodes"]

BY_AGENT = {"reward": "float64", "terminated": "bool", "truncated": "bool", "acted": "bool"}
"""Fields of a step that every agent has, beside obs and action."""


class RecordTeamEpisodes(MultiAgentVectorEnv):
    """Records every episode of a multi-agent vector environment to a folder of `EpisodeBuffer`.

    A step has the fields of `RecordEpisodes` for each agent by its name (`obs.agent_0`,
    `reward.agent_1`), and `acted`, which is False where the agent was gone or waited for its turn:
    there its action is zero. An agent's own steps are the rows in which it acted. Where actions are
    discrete, `action_mask` is True for those that were allowed. Episodes have the meta fields
    final_obs by agent, seed (-1 for none) and env, the number of their copy. They are written when
    they end; `reset` and `close` end those under way as truncated.

    Args:
        env: A multi-agent vector environment whose spaces `RecordEpisodes` supports.
        folder: Folder of the episodes; one that holds episodes of the same fields is continued.
        max_episodes: Episodes that the folder may hold.
        max_timesteps: Steps that an episode may have.
        **buffer_options: Further ones of `EpisodeBuffer`: circular, overwrite, durability.

    Attributes:
        buffer: The `EpisodeBuffer`.

    Example:
        >>> from sharpwave.envs import make_multi_env
        >>> env = RecordTeamEpisodes(make_multi_env("mpe2/simple_spread_v3", 2), "recorded")
        >>> step = env.reset(seed=0)
        >>> for _ in range(50):
        ...     step = env.step({"agent": np.ones((2, 3), np.int64)})
        >>> env.close()
        >>> buffer = EpisodeBuffer.from_folder("recorded")
        >>> rows = buffer.gather(np.arange(25))
        >>> buffer.episodes().lengths.tolist(), rows["reward.agent_2"].shape
        ([25, 25, 25, 25], (25,))
    """

    resumable = False
    """A recorded episode begins with a reset."""

    def __init__(
        self,
        env: MultiAgentVectorEnv,
        folder: str | os.PathLike[str],
        *,
        max_episodes: int = UNLIMITED,
        max_timesteps: int = UNLIMITED,
        **buffer_options: Any,
    ) -> None:
        self.env = env
        self.num_envs, self.agents, self.groups = env.num_envs, env.agents, env.groups
        self.observation_spaces, self.action_spaces = env.observation_spaces, env.action_spaces
        self.state_space, self.metadata = env.state_space, env.metadata  # type: ignore[misc]
        self.render_mode = getattr(env, "render_mode", None)
        self.resets_apart = env.resets_apart
        self._seats = {
            agent: (name, i)
            for name, members in env.groups.items()
            for i, agent in enumerate(members)
        }
        observation, action = (
            spaces.Dict({agent: by_group[self._seats[agent][0]] for agent in env.agents})
            for by_group in (env.observation_spaces, env.action_spaces)
        )
        self._recording = Recording(observation, action, {}, ())
        by_agent: dict[str, Any] = {
            name: dict.fromkeys(env.agents, kind) for name, kind in BY_AGENT.items()
        }
        self._choices = {
            agent: sum(choices(space))
            for agent, space in action.spaces.items()
            if not isinstance(space, spaces.Box)
        }
        if self._choices:
            by_agent["action_mask"] = {agent: ("bool", (n,)) for agent, n in self._choices.items()}
        self.buffer = EpisodeBuffer(
            folder,
            max_episodes,
            max_timesteps,
            {**self._recording.fields, **by_agent},
            {**self._recording.meta_fields, "env": "int32"},
            **buffer_options,
        )
        self._before: MultiStep | None = None
        self._final: list[Any] = [None] * env.num_envs
        self._steps: list[list[dict[str, Any]]] = [[] for _ in range(env.num_envs)]
        self._seeds: list[int | None] = [None] * env.num_envs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Reset the environments; episodes that were under way end as truncated."""
        for number in range(self.num_envs):
            self._cut(number)
        self._before = self.env.reset(seed=seed, options=options)
        self._seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        return self._before

    def step(self, actions: Mapping[str, Any]) -> MultiStep:
        """Step the environments and record the steps."""
        before, step = self._before, self.env.step(actions)
        if before is not None:
            only_resets = before.ended & self.resets_apart
            for number in np.flatnonzero(~only_resets).tolist():
                self._steps[number].append(self._row(number, before, actions, step))
                self._final[number] = self._seen(step, "next_obs", number)
                if step.ended[number]:
                    self._end(number)
        self._before = step
        return step

    def render(self) -> Any:
        """The frame of each environment."""
        return self.env.render()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Close environments and folder; episodes that were under way end as truncated."""
        try:
            if not self.buffer._is_closed:
                for number in range(self.num_envs):
                    self._cut(number)
        finally:
            self.buffer.close()
            self.env.close()

    def _row(
        self, number: int, before: MultiStep, actions: Mapping[str, Any], step: MultiStep
    ) -> dict[str, Any]:
        """The fields of a step of one environment."""
        acted = self._seen(before, "alive", number)
        chosen = {}
        for agent, (group, i) in self._seats.items():
            action = as_fields(map_leaves(lambda x, i=i: x[number, i], actions[group]))
            chosen[agent] = action if acted[agent] else map_leaves(np.zeros_like, action)
        masks = {agent: self._mask(agent, number, before) for agent in self._choices}
        return {
            **({"action_mask": masks} if masks else {}),
            "obs": self._seen(before, "obs", number),
            "action": chosen,
            "reward": self._seen(step, "rewards", number),
            "terminated": self._seen(step, "terminated", number),
            "truncated": self._seen(step, "truncated", number),
            "acted": acted,
        }

    def _mask(self, agent: str, number: int, step: MultiStep) -> Any:
        """[n] the actions that an agent was allowed."""
        group, i = self._seats[agent]
        masks = step.groups[group].masks
        return np.ones(self._choices[agent], np.bool_) if masks is None else masks[number, i].copy()

    def _seen(self, step: MultiStep, entry: str, number: int) -> dict[str, Any]:
        """An entry of a step of one environment, by agent."""
        found = {}
        for agent in self.agents:
            group, i = self._seats[agent]
            values = getattr(step.groups[group], entry)
            found[agent] = as_fields(map_leaves(lambda leaf, i=i: leaf[number, i], values))
        return found

    def _cut(self, number: int) -> None:
        steps = self._steps[number]
        if steps and self._before is not None:
            alive = self._seen(self._before, "alive", number)
            steps[-1]["truncated"] = {
                agent: steps[-1]["truncated"][agent] | alive[agent] for agent in self.agents
            }
        self._end(number)

    def _end(self, number: int) -> None:
        steps, self._steps[number] = self._steps[number], []
        seed, self._seeds[number] = self._seeds[number], None
        if steps:
            columns = map_leaves(lambda *rows: np.stack(rows), *steps)
            meta = {**self._recording.meta(seed, None), "env": number}
            self.buffer.store_episode(**columns, **meta, **{FINAL_OBS: self._final[number]})
