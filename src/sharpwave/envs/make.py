"""Vector environments from whatever names or makes an environment."""

from __future__ import annotations

import difflib
import importlib.util
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from sharpwave.core.optional import missing_library, require
from sharpwave.envs.atari import is_atari, make_atari
from sharpwave.envs.envpool import EnvPoolVectorEnv, is_envpool
from sharpwave.envs.native import NAMESPACE, NativeVectorEnv, why_not_native
from sharpwave.envs.python import EnvMaker, PythonVectorEnv
from sharpwave.envs.spaces import check_spaces
from sharpwave.envs.subprocess import SubprocessVectorEnv
from sharpwave.envs.tensors import TensorVectorEnv, is_tensor_env

__all__ = ["make_vec_env"]

MODES = ("auto", "native", "sync", "async")


def make_vec_env(
    env: Any,
    n_envs: int | None = None,
    *,
    seed: int | None = None,
    mode: str = "auto",
    env_kwargs: dict[str, Any] | None = None,
    device: Any = None,
) -> VectorEnv[Any, Any, Any]:
    """A vector environment from an id, an environment, a maker of environments, or as it is.

    Args:
        env: An id such as "CartPole-v1"; an environment (for one); something that makes one when
            called; a Gymnasium vector environment (also ale-py's) or an envpool; an environment
            that steps tensors (see TensorVectorEnv).
        n_envs: Number of environments; None for one, or for as many as a vector environment has.
        seed: The environments are reset with it once (environment i with seed + i), so that a later
            reset without a seed goes on from there; the action space is seeded too.
        mode: "sync" in this process, "async" in one process each, "native" in native code (see
            NativeVectorEnv), "auto" in native code where there is any for the id and `env_kwargs`
            (Atari games by ale-py, prepared as usual), otherwise in this process.
        env_kwargs: For the maker, or for `gymnasium.make` of the id.
        device: Where the environments of an id step tensors, "cuda" for example (see
            DeviceVectorEnv); None for environments that step arrays.

    Raises:
        ValueError: The id is unknown (the nearest are named), an argument does not fit, or there is
            no native code and `mode` or `device` asks for it.
        TypeError: `env` is none of these, or its spaces are not supported.
        EnvironmentFailed: An environment raised when it was made or reset.
        ImportError: It needs a library that is not installed; the message says what installs it.

    Example:
        >>> env = make_vec_env("CartPole-v1", 4, seed=0)
        >>> env.reset()[0].shape
        (4, 4)
        >>> env.close()
    """
    check_copies(n_envs, mode)
    if device is None:
        made = _made(env, n_envs, mode, env_kwargs)
    else:
        made = _made_there(device, env, n_envs, mode, env_kwargs)
    try:
        check_spaces(made)
        if seed is not None:
            made.action_space.seed(seed)
            made.reset(seed=seed)
    except BaseException:
        if made is not env:
            made.close()
        raise
    return made


def check_copies(n_envs: Any, mode: str) -> None:
    """Raise where environments cannot be so many, or be stepped in such a way."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, got {mode!r}")
    if n_envs is not None:
        if isinstance(n_envs, bool) or not isinstance(n_envs, int | np.integer):
            raise TypeError(f"n_envs must be an integer, got {n_envs!r}")
        if n_envs < 1:
            raise ValueError(f"n_envs must be at least 1, got {n_envs}")


def _made(
    env: Any, n_envs: int | None, mode: str, env_kwargs: dict[str, Any] | None
) -> VectorEnv[Any, Any, Any]:
    if is_envpool(env):
        env = EnvPoolVectorEnv(env)
    elif is_tensor_env(env):
        env = TensorVectorEnv(env)
    if isinstance(env, VectorEnv | gym.Env):
        return _as_it_is(env, n_envs, mode, env_kwargs)
    n_envs = 1 if n_envs is None else int(n_envs)
    kwargs = dict(env_kwargs or {})
    if mode in ("auto", "native"):
        why_not = why_not_native(env, kwargs)
        if why_not is None:
            return NativeVectorEnv(env.removeprefix(NAMESPACE), n_envs, **kwargs)
        if mode == "native":
            raise ValueError(f'mode must not be "native": {why_not}')
    if isinstance(env, str):
        if is_atari(env) and mode == "auto":
            return make_atari(_checked_id(env), n_envs, **kwargs)
        maker = _maker_of_id(env, kwargs)
    elif callable(env):
        maker = partial(env, **kwargs) if kwargs else env
    else:
        raise TypeError(
            "env must be an id, a gymnasium.Env, a callable that makes one, or a "
            f"gymnasium.vector.VectorEnv, got {type(env).__module__}.{type(env).__qualname__}"
        )
    vectorized = SubprocessVectorEnv if mode == "async" else PythonVectorEnv
    return vectorized([maker] * n_envs)


def _made_there(
    device: Any, env: Any, n_envs: int | None, mode: str, env_kwargs: dict[str, Any] | None
) -> TensorVectorEnv:
    """Environments that step tensors on a device."""
    from sharpwave.envs.on_device import DeviceVectorEnv

    if mode != "auto":
        raise ValueError(f'mode must be "auto" where device is given, got {mode!r}')
    kwargs = dict(env_kwargs or {})
    why_not = why_not_native(env, kwargs)
    if why_not is not None:
        raise ValueError(f"device must be None here, got {str(device)!r}: {why_not}")
    kwargs.pop("render_mode", None)
    n_envs = 1 if n_envs is None else int(n_envs)
    return TensorVectorEnv(DeviceVectorEnv(env.removeprefix(NAMESPACE), n_envs, device, **kwargs))


def _as_it_is(
    env: Any, n_envs: int | None, mode: str, env_kwargs: dict[str, Any] | None
) -> VectorEnv[Any, Any, Any]:
    if env_kwargs:
        raise ValueError("env_kwargs must not be given with an environment that is already made")
    if mode in ("native", "async"):
        raise ValueError(f'mode must not be "{mode}" with an environment that is already made')
    if isinstance(env, VectorEnv):
        if n_envs is not None and n_envs != env.num_envs:
            raise ValueError(f"n_envs must be {env.num_envs} like the env's, got {n_envs}")
        if getattr(env.unwrapped, "batch_size", env.num_envs) != env.num_envs:
            raise ValueError("env must step all environments at once: batch_size must be num_envs")
        return env
    if n_envs not in (None, 1):
        raise ValueError(f"n_envs must be 1 for a single environment, got {n_envs}")
    return PythonVectorEnv([lambda: env])


def register_atari() -> None:
    """Make the Atari games of ale-py known to Gymnasium.

    Raises:
        ImportError: ale-py is not installed.
    """
    gym.register_envs(require("ale_py", extra="atari"))


def _checked_id(env_id: str) -> str:
    register_atari()
    if env_id not in gym.registry:
        _maker_of_id(env_id, {})  # which names the nearest
    return env_id


def _maker_of_id(env_id: str, kwargs: dict[str, Any]) -> EnvMaker:
    known = env_id in gym.registry
    if not known and (is_atari(env_id) or importlib.util.find_spec("ale_py") is not None):
        register_atari()  # it has ids of the old names too
    if env_id in gym.registry:
        # The spec travels to other processes, whose registry may lack the id.
        return partial(gym.make, gym.spec(env_id), disable_env_checker=True, **kwargs)
    try:
        gym.make(env_id, disable_env_checker=True, **kwargs).close()
    except (gym.error.Error, ModuleNotFoundError) as error:
        missing = missing_library(error, env_id)
        if missing is not None:
            raise missing from error
        from sharpwave.envs.multi.make import is_multi_id  # which takes these environments, too

        if is_multi_id(env_id):
            raise ValueError(
                f"env must have one agent, got {env_id!r}: MAPPO, IPPO, VDN and QMIX learn for "
                "several"
            ) from error
        message = f"env must be the id of a registered environment, got {env_id!r}"
        nearest = _nearest(env_id)
        if not isinstance(error, gym.error.UnregisteredEnv | ModuleNotFoundError):
            message += f": {error}"
        elif nearest:
            message += f"; the nearest are {', '.join(nearest)}"
        raise ValueError(message) from error
    return partial(gym.make, env_id, disable_env_checker=True, **kwargs)


def _nearest(env_id: str) -> list[str]:
    by_lower = {known.lower(): known for known in gym.registry}
    found = difflib.get_close_matches(env_id.lower(), by_lower, n=3, cutoff=0.5)
    return [by_lower[name] for name in found]
