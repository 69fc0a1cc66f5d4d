"""mpe2's simple_spread_v3 in native code, many of them stepped together."""

from __future__ import annotations

import importlib.metadata
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium import spaces

from sharpwave import _native
from sharpwave.envs.multi.groups import checked_groups
from sharpwave.envs.multi.vector import GroupStep, MultiAgentVectorEnv, MultiStep
from sharpwave.envs.native_reset import NativeReset
from sharpwave.envs.native_state import checked_arrays
from sharpwave.types import Array

__all__ = ["NATIVE_IDS", "NativeMultiAgentEnv", "why_not_native"]

NATIVE_IDS = ("mpe2/simple_spread_v3", "mpe2.simple_spread_v3")
"""The names that it goes by."""

MOST_AGENTS = 8
VERSION = "1.1"
"""Version of mpe2 that has the same numbers; earlier versions differ."""

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"N": 3, "local_ratio": 0.5, "max_cycles": 25, "continuous_actions": False}
)
"""The arguments that native code knows."""

NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        "render_mode": None,
        "benchmark_data": False,
        "curriculum": False,
        "terminate_on_success": False,
        "num_agent_neighbors": None,
        "num_landmark_neighbors": None,
    }
)
"""Arguments that it accepts with their default values only."""

DRAWN = "dynamic_rescaling"
"""The one that changes nothing but pictures."""


class NativeMultiAgentEnv(_native.VectorEnv, MultiAgentVectorEnv):
    """Many `simple_spread_v3` of mpe2 1.1, for 1 to 8 agents.

    From the same beginning the same actions give mpe2's observations and rewards, to the last bit
    of whole episodes, with the same equations in the same order in float64. What differs are the
    random numbers of resets, which follow the same distribution: each environment draws from a
    counter-based generator of its own, so what it does depends on its seed and actions alone,
    whatever the number of environments or threads.

    The state that a critic may look at is mpe2's: the observations of all agents, one after the
    other.

    Args:
        env_id: "mpe2/simple_spread_v3".
        num_envs: Number of environments.
        groups: Agents by the name of their group, "each" for one of its own for every agent, None
            for one group of all.
        threads: At most so many threads step; 0 for one on each core. Few environments are stepped
            by the calling thread alone.
        **options: Options of mpe2's constructor: `N`, `local_ratio`, `max_cycles`,
            `continuous_actions`; others only with values that change nothing.

    Raises:
        ValueError: Native code does not know the environment, an option or a value.

    Example:
        >>> env = NativeMultiAgentEnv("mpe2/simple_spread_v3", 64, N=3)
        >>> begun = env.reset(seed=0)
        >>> stepped = env.step({"agent": np.zeros((64, 3), np.int64)})
        >>> stepped.groups["agent"].obs.shape, stepped.groups["agent"].rewards.shape
        ((64, 3, 18), (64, 3))
        >>> stepped.state.shape
        (64, 54)
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        groups: Mapping[str, Sequence[str]] | str | None = None,
        threads: int = 0,
        **options: Any,
    ) -> None:
        reason = why_not_native(env_id, options)
        if reason is not None:
            raise ValueError(reason)
        known = {name: options.get(name, value) for name, value in DEFAULTS.items()}
        self.n_agents = int(known["N"])
        is_continuous = bool(known["continuous_actions"])
        native_id = "simple_spread_v3-continuous" if is_continuous else "simple_spread_v3"
        spec = _native.multi_environment_spec(native_id, self.n_agents)
        limit, ratio = known["max_cycles"], float(known["local_ratio"])
        super().__init__(native_id, num_envs, limit, ratio, "same_step", threads, self.n_agents)
        self.num_envs = int(num_envs)
        self.env_id = env_id
        self._arguments = {"groups": groups, "threads": threads, **options}

        size = spec["obs_size"]
        observation = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        action: spaces.Space[Any] = spaces.Discrete(5)
        if is_continuous:
            action = spaces.Box(0, 1, (5,), np.float32)
        self.agents = tuple(f"agent_{i}" for i in range(self.n_agents))
        pair = observation, action
        self.groups = checked_groups(groups, dict.fromkeys(self.agents, pair))
        self.observation_spaces = dict.fromkeys(self.groups, observation)
        self.action_spaces = dict.fromkeys(self.groups, action)
        # Columns of each group's agents; one group with all in order needs no copies.
        self._places = {
            name: [self.agents.index(agent) for agent in members]
            for name, members in self.groups.items()
        }
        self.is_one_group = list(self.groups.values()) == [self.agents]
        self.state_space = spaces.Box(-np.inf, np.inf, (self.n_agents * size,), np.float32)

        self._shape = (self.num_envs, self.n_agents, size)
        self._reset_of = NativeReset(native_id, spec, self.num_envs)
        self._is_seeded = False
        self._none = _constant(False, self._shape[:2])
        self._all = _constant(True, self._shape[:2])
        self._no_infos: tuple[Mapping[str, Any], ...] = (MappingProxyType({}),) * self.num_envs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> MultiStep:
        """Begin new episodes everywhere, or in those of `options["reset_mask"]`.

        Args:
            seed: Environment i gets seed + i; None lets the streams go on.
            options: `low` and `high`, the bounds of positions, which hold for this reset alone;
                `reset_mask`: [N] bool.

        Raises:
            ValueError: The seed or an option does not fit. Nothing changed.
        """
        if seed is None and not self._is_seeded:
            seed = secrets.randbits(63)
        obs = self._reset(*self._reset_of.arguments(seed, options)).reshape(self._shape)
        self._is_seeded = True
        none = self._none
        return self._stepped(obs, obs, np.zeros(self._shape[:2]), none, none, none[:, 0])

    def step(self, actions: Mapping[str, Any]) -> MultiStep:  # type: ignore[override]
        """Step all environments.

        Args:
            actions: [N, G] integers, or [N, G, 5] finite numbers, which are clipped to the action
                space, by the group.

        Raises:
            ValueError: A group is missing or unknown, the shape does not fit, or an action is out
                of range, NaN or inf. Nothing changed.
        """
        if actions.keys() != self.groups.keys():
            raise ValueError(
                f"actions must be of the groups {list(self.groups)}, got {list(actions)}"
            )
        obs, next_obs, rewards, terminated, truncated = self._step_agents(self._joined(actions))
        if next_obs is obs:
            none = self._none
            return self._stepped(obs, obs, rewards, none, none, truncated)
        ended = terminated | truncated
        terminated, truncated = (
            np.repeat(flags[:, None], self.n_agents, axis=1) for flags in (terminated, truncated)
        )
        return self._stepped(obs, next_obs, rewards, terminated, truncated, ended)

    def _stepped(
        self,
        obs: Array,
        next_obs: Array,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        ended: Array,
    ) -> MultiStep:
        group = GroupStep(obs, next_obs, rewards, terminated, truncated, self._all, None)
        groups = self._apart(group)
        state = obs.reshape(self.num_envs, -1)
        infos: Sequence[Mapping[str, Any]] = self._no_infos
        if next_obs is obs:
            next_state = state
        else:
            next_state = next_obs.reshape(self.num_envs, -1)
            infos = [{"final_info": {}} if end else {} for end in ended]
        return MultiStep(groups, state, next_state, ended, infos)

    def _joined(self, actions: Mapping[str, Any]) -> Any:
        """Actions [N, A, ...] of all agents in order."""
        if self.is_one_group:
            return next(iter(actions.values()))
        joined: Array | None = None
        for name, places in self._places.items():
            own = np.asarray(actions[name])
            expected = (self.num_envs, len(places), *(self.action_spaces[name].shape or ()))
            if own.shape != expected:
                raise ValueError(f"actions[{name!r}] must have shape {expected}, got {own.shape}")
            if joined is None:
                joined = np.empty((self.num_envs, self.n_agents, *own.shape[2:]), own.dtype)
            joined[:, places] = own
        return joined

    def _apart(self, step: GroupStep) -> dict[str, GroupStep]:
        """A step of all agents by group."""
        if self.is_one_group:
            return dict.fromkeys(self.groups, step)
        groups = {}
        for name, places in self._places.items():
            obs, next_obs, *others = (None if x is None else np.asarray(x)[:, places] for x in step)
            next_obs = obs if step.next_obs is step.obs else next_obs
            groups[name] = GroupStep(obs, next_obs, *others)  # type: ignore[arg-type]
        return groups

    def get_state(self) -> dict[str, Any]:
        """Everything that decides what happens next, as arrays.

        Example:
            >>> env = NativeMultiAgentEnv("mpe2/simple_spread_v3", 2)
            >>> _ = env.reset(seed=0)
            >>> state, actions = env.get_state(), {"agent": np.ones((2, 3), np.int64)}
            >>> first = env.step(actions).state
            >>> env.set_state(state)
            >>> bool((env.step(actions).state == first).all())
            True
        """
        return {**self._save(), "id": self._reset_of.env_id}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` of environments made alike was.

        Raises:
            ValueError: It is not the state of such environments. Nothing changed.
        """
        reset = self._reset_of
        arrays = checked_arrays(
            state, reset.env_id, self.num_envs, reset.n_variables, self.n_agents
        )
        self._restore(*arrays)
        self._is_seeded = True

    def close(self) -> None:
        """Refuse everything from now on."""
        self._close()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.get_state()
        made = partial(NativeMultiAgentEnv, self.env_id, self.num_envs, **self._arguments)
        return _made_again, (made, state if state["is_ready"] else None)


def why_not_native(
    env_id: Any,
    env_kwargs: Mapping[str, Any],
) -> str | None:
    """Why `NativeMultiAgentEnv` cannot stand for an environment; None when it can.

    Args:
        env_id: Id of an environment, or anything else that one is made of.
        env_kwargs: Arguments of its constructor.

    Example:
        >>> why_not_native("mpe2/simple_spread_v3", {"N": 5})
        >>> why_not_native("mpe2/simple_spread_v3", {"curriculum": True})
        "simple_spread_v3 has no native argument 'curriculum'"
        >>> why_not_native("mpe2/simple_tag_v3", {})
        "'mpe2/simple_tag_v3' is not a native environment"
    """
    if not isinstance(env_id, str) or env_id not in NATIVE_IDS:
        return f"{env_id!r} is not a native environment"
    installed = _installed_version()
    if installed is not None and installed.split(".")[:2] != VERSION.split("."):
        return f"native simple_spread_v3 is that of mpe2 {VERSION}, and {installed} is installed"
    return _why_not_arguments(env_kwargs)


def _why_not_arguments(arguments: Mapping[str, Any]) -> str | None:
    """Why native code cannot do what mpe2 does with these arguments; None when it can."""
    for name, value in arguments.items():
        is_neutral = name == DRAWN or (name in NEUTRAL and value is NEUTRAL[name])
        if name not in DEFAULTS and not is_neutral:
            return f"simple_spread_v3 has no native argument {name!r}"
    n, ratio, cycles, is_continuous = (
        arguments.get(name, value) for name, value in DEFAULTS.items()
    )
    if not (_is_integer(n) and 1 <= n <= MOST_AGENTS):
        return f"N of native simple_spread_v3 is from 1 to {MOST_AGENTS}, got {n!r}"
    if not (isinstance(ratio, float | int) and 0 <= ratio <= 1):
        return f"local_ratio of simple_spread_v3 is from 0 to 1, got {ratio!r}"
    if not (_is_integer(cycles) and cycles >= 1):
        return f"max_cycles of simple_spread_v3 is at least 1, got {cycles!r}"
    if not isinstance(is_continuous, bool | np.bool_):
        return f"continuous_actions is True or False, got {is_continuous!r}"
    return None


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("mpe2")
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _constant(value: bool, shape: tuple[int, ...]) -> Array:
    """Flags that many steps share, and nobody may write to."""
    flags = np.full(shape, value)
    flags.flags.writeable = False
    return flags


def _made_again(made: Any, state: Mapping[str, Any] | None) -> NativeMultiAgentEnv:
    env: NativeMultiAgentEnv = made()
    if state is not None:
        env.set_state(state)
    return env
