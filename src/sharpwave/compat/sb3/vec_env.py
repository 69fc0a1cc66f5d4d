"""Environments of this library under the interface of SB3's `VecEnv`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sharpwave.core.notice import notice
from sharpwave.core.optional import is_installed
from sharpwave.core.tree import map_leaves
from sharpwave.envs import Stepper
from sharpwave.envs.step_infos import own_infos
from sharpwave.types import Array, Nested

__all__ = ["NativeVecEnv", "each_info", "make_vec_env"]


class NativeVecEnv:
    """A vector environment of Gymnasium's interface, native ones included, as SB3's `VecEnv`.

    It counts episodes as SB3's Monitor does: `info["episode"]` has return, length and time. Where
    Stable-Baselines3 is installed it passes for a `DummyVecEnv`.

    Args:
        env: The vector environment.

    Attributes:
        env: The vector environment.
        was_stepped: True once somebody has reset or stepped it through this interface.
        next_seed: Of the next reset; None goes on with the environments' own generators.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.num_envs = int(env.num_envs)
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.render_mode = getattr(env, "render_mode", None)
        self.metadata = {"render_modes": [] if self.render_mode is None else [self.render_mode]}
        self.reset_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.was_stepped = False
        self._stepper = Stepper(env)
        self._episodes = EpisodeInfos(self.num_envs)
        self.next_seed: int | None = None
        self._options: dict[str, Any] | None = None
        self._actions: Any = None
        self._pass_for_theirs()

    def _pass_for_theirs(self) -> None:
        if is_installed("stable_baselines3"):
            from stable_baselines3.common.vec_env import DummyVecEnv

            DummyVecEnv.register(type(self))

    @property
    def unwrapped(self) -> NativeVecEnv:
        """The environment itself."""
        return self

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Seed the environments at the next reset, environment i with seed + i."""
        self.next_seed = (
            int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else seed
        )
        return [self.next_seed + i for i in range(self.num_envs)]

    def set_options(self, options: Any = None) -> None:
        """Give options to the next reset."""
        self._options = options[0] if isinstance(options, list) else options

    def reset(self) -> Nested:
        """Start new episodes everywhere."""
        self.was_stepped = True
        obs, infos = self._stepper.reset(self.next_seed, self._options)
        self.next_seed = self._options = None
        self.reset_infos = each_info(infos, self.num_envs)
        self._episodes.restart()
        return obs

    def step_async(self, actions: Any) -> None:
        """Keep the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[Nested, Array, Array, list[dict[str, Any]]]:
        """Step: observations, rewards, whose episode ended, and infos."""
        self.was_stepped = True
        step = self._stepper.step(np.asarray(self._actions))
        dones = step.terminated | step.truncated
        infos = each_info(own_infos(step), self.num_envs)
        self._episodes.add(infos, step.rewards, step.terminated, step.truncated, step.next_obs)
        return step.obs, step.rewards.astype(np.float32), dones, infos

    def step(self, actions: Any) -> tuple[Nested, Array, Array, list[dict[str, Any]]]:
        """`step_async` and `step_wait`."""
        self.step_async(actions)
        return self.step_wait()

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def has_attr(self, attr_name: str) -> bool:
        """Return whether all environments have an attribute."""
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment."""
        if attr_name in ("render_mode", "spec", "observation_space", "action_space"):
            value = {**vars(self), "spec": getattr(self.env, "spec", None)}[attr_name]
            return self._chosen([value] * self.num_envs, indices)
        if not hasattr(self.env, "get_attr"):
            raise AttributeError(
                f"native environments have no {attr_name!r}: give an environment of Gymnasium's in "
                "place of the id"
            )
        return self._chosen(self.env.get_attr(attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each environment."""
        if not hasattr(self.env, "set_attr") or indices is not None:
            raise AttributeError(f"{attr_name!r} must be set on environments of Gymnasium's, all")
        self.env.set_attr(attr_name, [value] * self.num_envs)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """The results of a method of each environment."""
        if not hasattr(self.env, "call"):
            raise AttributeError(
                f"native environments have no {method_name!r}: give an environment of Gymnasium's "
                "in place of the id"
            )
        return self._chosen(self.env.call(method_name, *method_args, **method_kwargs), indices)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """True of SB3's Monitor, whose work is done here."""
        is_monitor = getattr(wrapper_class, "__name__", "") == "Monitor"
        return self._chosen([is_monitor] * self.num_envs, indices)

    def get_images(self) -> Sequence[Any]:
        """A frame of each environment."""
        frames: Sequence[Any] = self.env.render()
        return frames

    def render(self, mode: str | None = None) -> Any:
        """Frames of environments that draw; native ones say that they do not."""
        if self.render_mode is None:
            notice(
                f"nothing is drawn, asked for render({mode!r}): give "
                'gym.make(id, render_mode="rgb_array") in place of the id'
            )
            return None
        frames = self.get_images()
        return frames[0] if len(frames) == 1 else frames

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Name of the class where wrappers of SB3 found an attribute already."""
        own = hasattr(self, name) and already_found
        return f"{type(self).__module__}.{type(self).__name__}" if own else None

    def _chosen(self, values: Iterable[Any], indices: Any) -> list[Any]:
        found = list(values)
        if indices is None:
            return found
        return [found[i] for i in np.atleast_1d(indices)]


class EpisodeInfos:
    """Entries of infos that SB3's Monitor and DummyVecEnv add.

    Args:
        n_envs: Number of environments.
    """

    def __init__(self, n_envs: int) -> None:
        self._returns = np.zeros(n_envs)
        self._lengths = np.zeros(n_envs, np.int64)
        self._began = time.time()

    def restart(self) -> None:
        """Forget the episodes in flight."""
        self._returns[:] = 0
        self._lengths[:] = 0

    def add(
        self,
        infos: Sequence[dict[str, Any]],
        rewards: Array,
        terminated: Array,
        truncated: Array,
        next_obs: Nested,
    ) -> None:
        """Add to the infos of a step what SB3 says in them."""
        self._returns += rewards
        self._lengths += 1
        dones = terminated | truncated
        for info in infos:
            info["TimeLimit.truncated"] = False
        for i in np.flatnonzero(dones).tolist():
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            infos[i]["terminal_observation"] = map_leaves(lambda leaf, i=i: leaf[i], next_obs)
            infos[i].setdefault(
                "episode",
                {
                    "r": round(float(self._returns[i]), 6),
                    "l": int(self._lengths[i]),
                    "t": round(time.time() - self._began, 6),
                },
            )
        self._returns[dones] = 0
        self._lengths[dones] = 0


def each_info(infos: dict[str, Any], n_envs: int) -> list[dict[str, Any]]:
    """The infos of each environment, from Gymnasium's vector form.

    Example:
        >>> infos = {"lives": np.array([3, 0]), "_lives": np.array([True, False])}
        >>> [list(info) for info in each_info(infos, 2)]
        [['lives'], []]
    """
    each: list[dict[str, Any]] = [{} for _ in range(n_envs)]
    for name, values in infos.items():
        if name.startswith("_") and name[1:] in infos:
            continue
        mask = infos.get(f"_{name}")
        parts = each_info(values, n_envs) if isinstance(values, dict) else values
        for i in range(n_envs):
            if mask is None or mask[i]:
                each[i][name] = parts[i]
    return each


def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Any = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: Any = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
) -> Any:
    """SB3's function of that name; native environments where there are any and nothing wraps them.

    Args:
        env_id: An id, or what makes an environment.
        n_envs: Number of environments.
        seed: Of the first reset, environment i with seed + i.
        start_index: Index of the first environment, for its seed.
        monitor_dir: Folder of Monitor's files.
        wrapper_class: Put around each environment.
        env_kwargs: Arguments of the environments.
        vec_env_cls: Class of the vector environment.
        vec_env_kwargs: Its arguments.
        monitor_kwargs: Arguments of Monitor.
        wrapper_kwargs: Arguments of `wrapper_class`.

    Raises:
        ImportError: Wrappers or files of SB3 are asked for, and it is not installed.
    """
    asked = (monitor_dir, wrapper_class, vec_env_cls, vec_env_kwargs, monitor_kwargs)
    if any(asked) or wrapper_kwargs:
        from sharpwave.core.optional import require

        theirs = require("stable_baselines3.common.env_util", extra="sb3")
        return theirs.make_vec_env(
            env_id,
            n_envs,
            seed,
            start_index,
            monitor_dir,
            wrapper_class,
            env_kwargs,
            vec_env_cls,
            vec_env_kwargs,
            monitor_kwargs,
            wrapper_kwargs,
        )
    from sharpwave import envs

    made = NativeVecEnv(envs.make_vec_env(env_id, n_envs, env_kwargs=env_kwargs))
    if seed is not None:
        made.seed(seed + start_index)
    return made
