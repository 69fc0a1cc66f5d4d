"""Gymnasium's classic environments in native code, many of them stepped together."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sharpwave import _native
from sharpwave.envs.native_reset import NativeReset
from sharpwave.envs.native_state import checked_arrays
from sharpwave.types import Array

__all__ = ["SPECS", "NativeVectorEnv", "why_not_native"]

SPECS = _native.environment_specs()
"""Specifications of the native environments, by Gymnasium's id."""

NAMESPACE = "sharpwave/"


class NativeVectorEnv(_native.VectorEnv, VectorEnv[Any, Any, Any]):
    """Many CartPole-v1, Pendulum-v1, Acrobot-v1, MountainCar-v0 or MountainCarContinuous-v0.

    One step from any state gives what Gymnasium's environment gives: the same equations, constants
    and limits in float64, vectorized over the environments. What differs are the random numbers of
    resets, which follow the same distribution: each environment draws from a counter-based
    generator of its own, so what it does depends on its seed and actions alone, whatever the number
    of environments or threads.

    `gymnasium.make_vec("sharpwave/CartPole-v1", 64)` makes one too, once this module was imported.

    Args:
        env_id: One of the ids above.
        num_envs: Number of environments.
        max_episode_steps: Time limit of an episode; None for Gymnasium's.
        autoreset_mode: Behavior at the end of an episode. SAME_STEP resets in the same step,
            with the last observation in `infos["final_obs"]`; NEXT_STEP in the next one; DISABLED
            leaves it to `reset(options={"reset_mask": ...})`.
        render_mode: None, or "rgb_array" for frames that Gymnasium's environment draws.
        threads: At most so many threads step; 0 for one on each core. Few environments are stepped
            by the calling thread alone.
        **options: Options of Gymnasium's constructor: `sutton_barto_reward` of CartPole-v1, `g` of
            Pendulum-v1, `goal_velocity` of the two cars.

    Raises:
        ValueError: The id is another, or an argument is out of range.
        TypeError: An option is unknown to the environment.

    Example:
        >>> env = NativeVectorEnv("CartPole-v1", 64)
        >>> obs, infos = env.reset(seed=0)
        >>> obs, rewards, terminated, truncated, infos = env.step(np.ones(64, np.int64))
        >>> obs.shape, rewards[:3].tolist()
        ((64, 4), [1.0, 1.0, 1.0])
        >>> env.close()
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        render_mode: str | None = None,
        threads: int = 0,
        **options: Any,
    ) -> None:
        if env_id not in SPECS:
            raise ValueError(f"env_id must be one of {', '.join(SPECS)}, got {env_id!r}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f'render_mode must be None or "rgb_array", got {render_mode!r}')
        spec = SPECS[env_id]
        mode = _autoreset_mode(autoreset_mode)
        limit = spec["time_limit"] if max_episode_steps is None else max_episode_steps
        option = option_of(env_id, options)
        super().__init__(env_id, num_envs, limit, option, mode.name.lower(), threads)
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self._arguments = {
            "max_episode_steps": max_episode_steps,
            "autoreset_mode": mode,
            "render_mode": render_mode,
            "threads": threads,
            **options,
        }
        theirs = gym.make(env_id, disable_env_checker=True, **options)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": theirs.metadata["render_fps"],
            "autoreset_mode": mode,
        }
        self.single_observation_space = theirs.observation_space
        self.single_action_space = theirs.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.spec = spec_of(env_id, max_episode_steps, options)
        self._reset_of = NativeReset(env_id, spec, self.num_envs)
        self._is_seeded = False
        self._painter: gym.Env[Any, Any] | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`.

        Args:
            seed: Environment i gets seed + i; or one seed for each, None to let its stream go on.
            options: `low` and `high`, the bounds of the first state, as in Gymnasium (`x_init` and
                `y_init` for Pendulum-v1); they hold for this reset alone. `reset_mask`: [N] bool.

        Returns:
            Observations [N, ...] float32 and empty infos.

        Raises:
            ValueError: A seed or an option does not fit. Nothing changed.
        """
        if seed is None and not self._is_seeded:
            seed = secrets.randbits(63)
        arguments = self._reset_of.arguments(seed, options)
        obs = self._reset(*arguments)
        self._is_seeded = True
        return obs, {}

    def render(self) -> tuple[Any, ...] | None:
        """The frame [height, width, 3] of each environment, or None without a `render_mode`.

        Gymnasium's environment draws them, put into the state of each in turn; a pendulum is drawn
        without its torque.
        """
        if self.render_mode is None:
            return None
        if self._painter is None:
            assert self.spec is not None
            self._painter = gym.make(self.spec.id, render_mode=self.render_mode).unwrapped
        frames = []
        for state in self._save()["variables"].T:
            vars(self._painter).update(state=state, last_u=None)
            frames.append(self._painter.render())
        return tuple(frames)

    def get_state(self) -> dict[str, Any]:
        """Everything that decides what happens next, as arrays.

        Example:
            >>> env = NativeVectorEnv("Pendulum-v1", 2)
            >>> _ = env.reset(seed=0)
            >>> state = env.get_state()
            >>> first = env.step(np.ones((2, 1)))[0]
            >>> env.set_state(state)
            >>> bool((env.step(np.ones((2, 1)))[0] == first).all())
            True
        """
        return {**self._save(), "id": self._reset_of.env_id}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` of an environment made alike was.

        Raises:
            ValueError: It is not the state of such an environment. Nothing changed.
        """
        reset = self._reset_of
        arrays = checked_arrays(state, reset.env_id, self.num_envs, reset.n_variables)
        self._restore(*arrays)
        self._is_seeded = True

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment."""
        return tuple(map(int, self._save()["seeds"]))

    def close_extras(self, **_: Any) -> None:
        """Refuse everything from now on."""
        self._close()
        if self._painter is not None:
            self._painter.close()

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.get_state()
        made = partial(NativeVectorEnv, self._reset_of.env_id, self.num_envs, **self._arguments)
        return _made_again, (made, state if state["is_ready"] else None)


def why_not_native(env_id: Any, env_kwargs: Mapping[str, Any]) -> str | None:
    """Why `NativeVectorEnv` cannot stand for an environment; None when it can.

    Example:
        >>> why_not_native("CartPole-v1", {})
        >>> why_not_native("CartPole-v1", {"render_mode": "human"})
        "CartPole-v1 has no native argument 'render_mode'"
        >>> why_not_native("Taxi-v3", {})
        "'Taxi-v3' is not a native environment"
    """
    name = env_id.removeprefix(NAMESPACE) if isinstance(env_id, str) else env_id
    if not isinstance(name, str) or name not in SPECS:
        return f"{env_id!r} is not a native environment"
    if gym.registry.get(name) != ORIGINALS[name]:
        return f"{name} is registered as something else than Gymnasium's"
    known = {"max_episode_steps", SPECS[name]["option"]} - {""}
    for argument, value in env_kwargs.items():
        if argument not in known and not (argument == "render_mode" and value is None):
            return f"{name} has no native argument {argument!r}"
    return None


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    by_name = {known.name.lower(): known for known in AutoresetMode}
    for name, known in by_name.items():
        if mode in (known, name, known.value):
            return known
    raise ValueError(f"autoreset_mode must be one of {tuple(by_name)}, got {mode!r}")


def spec_of(
    env_id: str, max_episode_steps: int | None, options: Mapping[str, Any]
) -> gym.envs.registration.EnvSpec:
    """Gymnasium's specification of a native environment with such arguments."""
    spec = copy.deepcopy(gym.spec(env_id))
    spec.kwargs = dict(options)
    if max_episode_steps is not None:
        spec.max_episode_steps = max_episode_steps
        spec.kwargs["max_episode_steps"] = max_episode_steps
    return spec


def option_of(env_id: str, options: Mapping[str, Any]) -> float:
    """The value of the one option that an environment has.

    Raises:
        TypeError: An option is unknown to the environment, or no number.
        ValueError: It is not finite.
    """
    spec = SPECS[env_id]
    for name in options:
        if name != spec["option"] or not name:
            raise TypeError(f"{env_id} has no argument {name!r}")
    value = options.get(spec["option"], spec["option_default"])
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{spec['option']} must be a number, got {value!r}") from error
    if not np.isfinite(number):
        raise ValueError(f"{spec['option']} must be finite, got {number}")
    return number


def _made_again(made: Any, state: Mapping[str, Any] | None) -> NativeVectorEnv:
    env: NativeVectorEnv = made()
    if state is not None:
        env.set_state(state)
    return env


cart_pole = partial(NativeVectorEnv, "CartPole-v1")
pendulum = partial(NativeVectorEnv, "Pendulum-v1")
acrobot = partial(NativeVectorEnv, "Acrobot-v1")
mountain_car = partial(NativeVectorEnv, "MountainCar-v0")
mountain_car_continuous = partial(NativeVectorEnv, "MountainCarContinuous-v0")

ENTRY_POINTS = {
    "CartPole-v1": "cart_pole",
    "Pendulum-v1": "pendulum",
    "Acrobot-v1": "acrobot",
    "MountainCar-v0": "mountain_car",
    "MountainCarContinuous-v0": "mountain_car_continuous",
}

ORIGINALS = {name: copy.deepcopy(gym.spec(name)) for name in SPECS}
"""Gymnasium's own specs: an id that someone registered anew is not ours to stand for."""

for _name, _entry in ENTRY_POINTS.items():
    gym.register(
        id=NAMESPACE + _name,
        entry_point=ORIGINALS[_name].entry_point,
        vector_entry_point=f"{__name__}:{_entry}",
        max_episode_steps=ORIGINALS[_name].max_episode_steps,
        reward_threshold=ORIGINALS[_name].reward_threshold,
    )
