"""Groups, spaces and arrays that the copies of a multi-agent environment share."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sharpwave.core.tree import map_leaves
from sharpwave.envs.masks import choices
from sharpwave.envs.multi.groups import checked_groups
from sharpwave.envs.multi.state import layers
from sharpwave.envs.spaces import check_action_space, check_observation_space, leaf_spaces
from sharpwave.errors import EnvironmentFailed
from sharpwave.types import Array, Flags, Nested

__all__ = ["MASK", "Block", "Form", "GroupForm", "read_form", "split_mask"]

Space = spaces.Space[Any]

Take = Callable[[tuple[int, ...], Any], Array]

OBSERVATION, MASK = "observation", "action_mask"
"""Entries of an observation that brings the mask of its actions along."""


@dataclass(frozen=True)
class GroupForm:
    """Agents and spaces of a group.

    Attributes:
        agents: Their names, in the order of their rows.
        observation_space: Of one agent, without the mask.
        action_space: Of one agent.
        path: Keys of the observation within that of the environment.
        has_mask: True if the mask is beside it there.
        choices: Number of masked choices of each dimension of an action; None where actions are
            continuous.
    """

    agents: tuple[str, ...]
    observation_space: Space
    action_space: Space
    path: tuple[str, ...]
    has_mask: bool
    choices: list[int] | None


@dataclass(frozen=True)
class Form:
    """Agents, groups and state space of the copies of an environment.

    Attributes:
        keys: The environment's own name of each agent, by ours.
        groups: By name.
        state_space: Of the state, or of that of one agent; None where there is none.
        has_own_states: True if every agent has a state of its own.
    """

    keys: Mapping[str, Any]
    groups: Mapping[str, GroupForm]
    state_space: Space | None
    has_own_states: bool = False

    def check_like(self, other: Form, index: int) -> None:
        """Raise where another environment, number `index`, is of another form."""
        mine, its = self._described(), other._described()
        for what, value in mine.items():
            if value != its[what]:
                raise ValueError(
                    f"environments must have the same {what}: environment {index} has "
                    f"{its[what]}, environment 0 {value}"
                )

    def _described(self) -> dict[str, Any]:
        spaces_of = {
            name: (group.observation_space, group.action_space, group.has_mask)
            for name, group in self.groups.items()
        }
        state = {"state_space": self.state_space, "own states": self.has_own_states}
        return {"agents": list(self.keys), "spaces": spaces_of, **state}


def read_form(env: Any, index: int, groups: Any = None) -> Form:
    """The agents and spaces of a parallel environment.

    Args:
        env: With PettingZoo's parallel interface.
        index: Number of the environment among several.
        groups: Agents by group; None for the default groups.

    Raises:
        TypeError: The environment lacks agents or spaces, or a space is not supported.
        ValueError: `groups` does not fit its agents.
        EnvironmentFailed: It raised.
    """
    keys = _named_agents(env)
    pairs = {agent: _spaces_of(env, key, agent) for agent, key in keys.items()}
    named = checked_groups(groups, pairs)
    formed = {name: _group_form(agents, *pairs[agents[0]]) for name, agents in named.items()}
    return Form(keys, formed, *_state_space(env, index, keys.values()))


def _named_agents(env: Any) -> dict[str, Any]:
    possible = getattr(env, "possible_agents", None)
    if possible is None:
        raise TypeError(f"env must have possible_agents, {type(env).__name__} has none")
    keys = {str(key): key for key in possible}
    if not keys or len(keys) != len(possible):
        raise ValueError(
            f"possible_agents must be at least one, each with its name, got {possible}"
        )
    return keys


def _spaces_of(env: Any, key: Any, agent: str) -> tuple[Space, Space]:
    pair = env.observation_space(key), env.action_space(key)
    for name, space in zip(("observation_space", "action_space"), pair, strict=True):
        if not isinstance(space, spaces.Space):
            raise TypeError(f"{name}({agent!r}) must be a space, got {space!r}")
    return pair


def _group_form(agents: tuple[str, ...], observed: Space, action_space: Space) -> GroupForm:
    path: tuple[str, ...] = ()
    has_mask = isinstance(observed, spaces.Dict) and {MASK} < set(observed.spaces)
    if has_mask:
        rest = {key: inner for key, inner in observed.spaces.items() if key != MASK}  # type: ignore[attr-defined]
        path = (OBSERVATION,) if set(rest) == {OBSERVATION} else ()
        observed = rest[OBSERVATION] if path else spaces.Dict(rest)
    check_observation_space(observed, f"observation_space({agents[0]!r})")
    check_action_space(action_space, f"action_space({agents[0]!r})")
    masked = None if isinstance(action_space, spaces.Box) else choices(action_space)
    return GroupForm(agents, observed, action_space, path, has_mask, masked)


def split_mask(space: Space, obs: Any) -> tuple[Any, Any]:
    """An observation as `space` has it, and the mask that the environment gave along; or None.

    Example:
        >>> split_mask(spaces.Discrete(9), {"observation": 4, "action_mask": [1, 0]})
        (4, [1, 0])
    """
    entries = space.spaces if isinstance(space, spaces.Dict) else {}
    if not isinstance(obs, Mapping) or MASK not in obs or MASK in entries:
        return obs, None
    rest = {key: inner for key, inner in obs.items() if key != MASK}
    is_alone = set(rest) == {OBSERVATION} and OBSERVATION not in entries
    return (rest[OBSERVATION] if is_alone else rest), obs[MASK]


def _state_space(env: Any, index: int, keys: Collection[Any]) -> tuple[Space | None, bool]:
    """The space of the state, or of that of one agent, and whether every agent has its own."""
    space = getattr(env, "state_space", None)
    if isinstance(space, spaces.Dict) and space.spaces.keys() == set(keys):
        first, *others = space.spaces.values()
        if any(other != first for other in others):
            raise TypeError(f"state_space must be the same for all agents, got {space}")
        return _checked_state(first), True
    if isinstance(space, spaces.Space):
        return _checked_state(space), False
    if not callable(getattr(env, "state", None)):
        return None, False
    try:
        env.reset()  # most have no state before
        if not all(callable(getattr(layer, "state", None)) for layer in layers(env)):
            return None, False  # some have something else of that name
        state = env.state()
    except NotImplementedError:
        return None, False
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        raise EnvironmentFailed(index, "reset()", trace) from error
    has_own = isinstance(state, Mapping) and bool(state)
    array = np.asarray(next(iter(state.values())) if has_own else state)
    low, high = (-np.inf, np.inf) if array.dtype.kind == "f" else _extremes(array.dtype)
    return spaces.Box(low, high, array.shape, array.dtype.type), has_own


def _checked_state(space: Space) -> Space:
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        raise TypeError(f"state_space must be one array, or one for every agent, got {space}")
    return space


def _extremes(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


class Block:
    """The arrays of N environments: actions in, and what comes out of a step.

    Args:
        form: Of the environments.
        num_envs: N.
        take: Makes or finds the next array of a shape and dtype, of zeros at first; processes that
            share their memory take the same arrays in the same order.

    Attributes:
        groups: The arrays of each group.
        state: [N, ...] to act on next where it differs from `next_state`, [N, A, ...] where each of
            all A agents has its own; None without any.
        next_state: The same that the actions led to.
        changed: [N] where what to act on next differs from what the actions led to.
        ended: [N] where the episode ended.
    """

    def __init__(self, form: Form, num_envs: int, take: Take = np.zeros) -> None:
        self.groups = {
            name: GroupArrays(group, num_envs, take) for name, group in form.groups.items()
        }
        space = form.state_space
        rows = (num_envs, len(form.keys)) if form.has_own_states else (num_envs,)
        self.next_state = None if space is None else _take(take, space, *rows)
        self.state = None if space is None else _take(take, space, *rows)
        self.changed: Flags = take((num_envs,), np.bool_)
        self.ended: Flags = take((num_envs,), np.bool_)


class GroupArrays:
    """The arrays of a group in a Block, [N, G, ...].

    Attributes:
        actions: Actions of the agents.
        next_obs: Observations that these led to.
        obs: To act on next, in the environments where it differs from `next_obs`.
        masks: Actions allowed next; None where actions are continuous.
        has_masks: [N] where the environment gives masks.
    """

    def __init__(self, group: GroupForm, num_envs: int, take: Take) -> None:
        rows = (num_envs, len(group.agents))
        leaves = leaf_spaces(group.observation_space)
        self.actions = _take(take, group.action_space, *rows)
        self.next_obs: Nested = map_leaves(lambda leaf: _take(take, leaf, *rows), leaves)
        self.obs: Nested = map_leaves(lambda leaf: _take(take, leaf, *rows), leaves)
        self.rewards: npt.NDArray[np.float64] = take(rows, np.float64)
        self.terminated: Flags = take(rows, np.bool_)
        self.truncated: Flags = take(rows, np.bool_)
        self.alive: Flags = take(rows, np.bool_)
        self.has_masks: Flags = take((num_envs,), np.bool_)
        self.masks: Flags | None = None
        if group.choices is not None:
            self.masks = take((*rows, sum(group.choices)), np.bool_)


def _take(take: Take, space: Any, *rows: int) -> Array:
    return take((*rows, *space.shape), space.dtype)
