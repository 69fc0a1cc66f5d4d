"""Several agents as one that chooses the actions of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave.core.tree import map_leaves
from sharpwave.envs.multi.vector import MultiAgentVectorEnv, MultiStep
from sharpwave.types import Array, Flags, Nested

__all__ = ["ACTS", "AGENTS", "BEGINS", "STATE", "JointVectorEnv"]

AGENTS, ACTS, BEGINS, STATE = "agents", "acts", "begins", "state"
"""Entries of an observation: those of the agents by group, who acts next, whose next action is the
first of a life, and the state."""


class JointVectorEnv(VectorEnv[Any, Any, Any]):
    """A multi-agent vector environment as a Gymnasium one, whose agent chooses for all agents.

    Its observations are Dicts: `agents` has the observations [G, ...] of each group, `acts` [A] who
    acts next, in the order of the groups, `begins` [A] whose next action is the first of a life,
    and `state` that of the environment. Its actions are MultiDiscrete, one for each agent; those of
    agents that do not act are ignored. The reward is
    the mean of the agents' rewards, which are in `infos["agent_rewards"]` [N, A]. An episode that
    ended in a step in which an agent was cut off is truncated, any other terminated. An agent that
    is cut off while others go on counts as dead.

    Args:
        env: The environment; the actions of all agents must be Discrete.
        has_state: Observations have the state.
        has_begins: They tell whose next action is the first of a life, as memories need to know.

    Raises:
        TypeError: Actions are of another kind.

    Example:
        >>> from sharpwave.envs import make_multi_env
        >>> env = JointVectorEnv(make_multi_env("mpe2/simple_spread_v3", 4))
        >>> obs, infos = env.reset(seed=0)
        >>> obs["agents"]["agent"].shape, obs["acts"].shape
        ((4, 3, 18), (4, 3))
        >>> env.single_action_space
        MultiDiscrete([5 5 5])
    """

    metadata: dict[str, Any]

    def __init__(
        self, env: MultiAgentVectorEnv, *, has_state: bool = False, has_begins: bool = False
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.render_mode = getattr(env, "render_mode", None)
        self.has_state, self.has_begins = has_state, has_begins
        mode = AutoresetMode.NEXT_STEP if env.resets_apart else AutoresetMode.SAME_STEP
        self.metadata = {**env.metadata, "autoreset_mode": mode}
        sizes = {name: len(agents) for name, agents in env.groups.items()}
        observed = {
            name: batch_space(env.observation_spaces[name], size) for name, size in sizes.items()
        }
        agents = spaces.Dict(observed)
        parts = {AGENTS: agents, ACTS: spaces.MultiBinary(sum(sizes.values()))}
        if has_begins:
            parts[BEGINS] = parts[ACTS]
        if has_state:
            assert env.state_space is not None
            parts[STATE] = env.state_space
        self._names = list(agents)
        self.single_observation_space = spaces.Dict(parts)
        self.single_action_space = _joint_actions(env)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        ends = np.cumsum(list(sizes.values())).tolist()
        self._columns = {
            name: slice(end - sizes[name], end) for name, end in zip(sizes, ends, strict=True)
        }
        self._acts: Flags = np.ones((self.num_envs, len(env.agents)), np.bool_)
        self._begins = self._acts.copy()
        self._widths = {name: int(env.action_spaces[name].n) for name in sizes}  # type: ignore[attr-defined]

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Nested, dict[str, Any]]:
        """Begin new episodes everywhere.

        Args:
            seed: Environment i gets seed + i; None goes on with the environments' own generators.
            options: For every environment.
        """
        assert seed is None or isinstance(seed, int)
        step = self.env.reset(seed=seed, options=options)
        self._begins[:] = True
        self._acts = self._columns_of(step, "alive")
        return self._observed(step, self._acts), self._infos(step)

    def go_on(self, obs: Any) -> None:
        """Go on where the last observations to act on were these."""
        self._acts = np.asarray(obs[ACTS], np.bool_)
        if self.has_begins:
            self._begins = np.array(obs[BEGINS], np.bool_)

    def step(self, actions: Any) -> tuple[Nested, Array, Flags, Flags, dict[str, Any]]:
        """Step all environments.

        Args:
            actions: [N, A] in the order of the groups.
        """
        chosen = np.asarray(actions)
        step = self.env.step({name: chosen[:, at] for name, at in self._columns.items()})
        rewards, terminated, truncated, acts = (
            self._columns_of(step, name) for name in ("rewards", "terminated", "truncated", "alive")
        )
        ended, infos = step.ended, self._infos(step)
        infos["agent_rewards"] = rewards
        self._begins &= ~self._acts
        was_cut, last = truncated & ~terminated, None
        if np.count_nonzero(ended):
            last = self._observed(step, was_cut, is_last=True)
        self._begins |= terminated | truncated | ended[:, None]
        self._acts, cut = acts, ended & was_cut.any(1)
        obs = self._observed(step, acts)
        if last is not None and self.env.resets_apart:
            obs = map_leaves(lambda new, old: _with_rows(new, old, ended), obs, last)
        elif last is not None:
            infos["final_obs"] = last
        return obs, rewards.mean(1), ended & ~cut, cut, infos

    def close(self, **_: Any) -> None:
        """Close all environments."""
        self.env.close()

    def render(self) -> Any:
        """The frame of each environment."""
        return self.env.render()  # type: ignore[attr-defined]

    @property
    def unwrapped(self) -> Any:
        """The multi-agent environment, which has the state of everything."""
        return self.env.unwrapped

    def _observed(
        self, step: MultiStep, acts: Flags, *, is_last: bool = False
    ) -> dict[str, Nested]:
        """Observations to act on next, or those that the step led to."""
        groups = step.groups
        obs: dict[str, Nested] = {  # in the order that the entries of spaces have
            ACTS: acts.astype(np.int8),
            AGENTS: {
                name: groups[name].next_obs if is_last else groups[name].obs for name in self._names
            },
        }
        if self.has_begins:
            obs[BEGINS] = self._begins.astype(np.int8)
        if self.has_state:
            state = step.next_state if is_last else step.state
            assert self.env.state_space is not None
            shape = self.env.state_space.shape
            if state is None or state.shape[1:] != shape:
                got = None if state is None else state.shape[1:]
                raise ValueError(f"the state must be one of all agents, {shape}, got {got}")
            obs[STATE] = state
        return obs

    def _infos(self, step: MultiStep) -> dict[str, Any]:
        groups = step.groups
        if all(group.masks is None for group in groups.values()):
            return {}
        masks = []
        for name, width in self._widths.items():
            alive, given = groups[name].alive, groups[name].masks
            allowed = np.ones((*alive.shape, width), np.bool_) if given is None else given
            # Who does not act may do what it likes.
            masks.append((allowed | ~alive[..., None]).reshape(self.num_envs, -1))
        return {"action_mask": np.concatenate(masks, 1)}

    def _columns_of(self, step: MultiStep, name: str) -> Array:
        """[N, A] of all agents."""
        return np.concatenate([getattr(group, name) for group in step.groups.values()], 1)


def _joint_actions(env: MultiAgentVectorEnv) -> spaces.MultiDiscrete:
    sizes: list[int] = []
    starts: list[int] = []
    for name, agents in env.groups.items():
        space = env.action_spaces[name]
        if not isinstance(space, spaces.Discrete):
            raise TypeError(
                f"the actions of all agents must be Discrete, got {space} of {agents[0]!r}"
            )
        sizes += [int(space.n)] * len(agents)
        starts += [int(space.start)] * len(agents)
    return spaces.MultiDiscrete(sizes, start=starts)


def _with_rows(new: Array, old: Array, rows: Flags) -> Array:
    merged = np.array(new)
    merged[rows] = old[rows]
    return merged
