"""Multi-agent vector environments from whatever names or makes an environment."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from sharpwave.core.optional import require
from sharpwave.envs.envpool import is_envpool
from sharpwave.envs.make import check_copies, make_vec_env
from sharpwave.envs.multi.groups import EACH
from sharpwave.envs.multi.native import NativeMultiAgentEnv, why_not_native
from sharpwave.envs.multi.pettingzoo import PettingZooVectorEnv
from sharpwave.envs.multi.single import SingleAgentVectorEnv
from sharpwave.envs.multi.vector import MultiAgentVectorEnv
from sharpwave.envs.multi.workers import make_one
from sharpwave.envs.named import module_of_id
from sharpwave.envs.tensors import is_tensor_env

__all__ = ["check_multi_id", "is_multi_id", "make_multi_env", "make_one_by_id", "multi_env_ids"]

VERSIONED = re.compile(r"(\w+)_v(\d+)")

Groups = Mapping[str, Sequence[str]]


def make_multi_env(
    env: Any,
    n_envs: int | None = None,
    *,
    seed: int | None = None,
    mode: str = "auto",
    groups: Groups | str | None = None,
    env_kwargs: dict[str, Any] | None = None,
) -> MultiAgentVectorEnv:
    """A multi-agent vector environment from an id, an environment, a maker, or as it is.

    Args:
        env: An id such as "mpe2/simple_spread_v3" or "pettingzoo.butterfly.pistonball_v6": a module
            whose `parallel_env` or `env` makes it; an environment with PettingZoo's interface,
            parallel or AEC; something that makes one when called; a MultiAgentVectorEnv. What
            `make_vec_env` takes is an environment of one agent.
        n_envs: Number of environments; None for one, or for as many as a vector environment has.
        seed: The environments are reset with it once (environment i with seed + i), so that a later
            reset without a seed goes on from there.
        mode: "sync" in this process, "async" in one process each, "native" in native code, "auto"
            in native code where there is any for the id and `env_kwargs`, otherwise in this
            process.
        groups: Agents by the name of their group, or "each" for one each; None for agents of equal
            spaces whose names differ only in their trailing number.
        env_kwargs: For the maker, or what the id names.

    Raises:
        ValueError: The id is unknown (the nearest are named), or an argument does not fit.
        TypeError: `env` is none of these, or its spaces are not supported.
        EnvironmentFailed: An environment raised when it was made or reset.
        ImportError: It needs a library that is not installed; the message says what installs it.

    Example:
        >>> env = make_multi_env("mpe2/simple_spread_v3", 4, seed=0, mode="sync")
        >>> env.groups
        {'agent': ('agent_0', 'agent_1', 'agent_2')}
        >>> env.reset().groups["agent"].obs.shape
        (4, 3, 18)
        >>> env.close()
    """
    check_copies(n_envs, mode)
    made = _made(env, n_envs, mode, groups, dict(env_kwargs or {}))
    if seed is not None:
        try:
            made.reset(seed=seed)
        except BaseException:
            if made is not env:
                made.close()
            raise
    return made


def multi_env_ids() -> list[str]:
    """Ids of the multi-agent environments that are installed, of mpe2 and PettingZoo."""
    ids = []
    spec = importlib.util.find_spec("mpe2")
    if spec is not None:
        found = pkgutil.iter_modules(spec.submodule_search_locations)
        ids += [f"mpe2/{module.name}" for module in found if VERSIONED.fullmatch(module.name)]
    if importlib.util.find_spec("pettingzoo") is not None:
        registry = importlib.import_module("pettingzoo").aec_registry
        ids += [f"pettingzoo/{name.replace('-v', '_v')}" for name in registry]
    return sorted(ids)


def is_multi_id(env_id: str) -> bool:
    """Return whether an id names a multi-agent environment, rather than one of Gymnasium.

    Example:
        >>> is_multi_id("mpe2/simple_spread_v3"), is_multi_id("CartPole-v1")
        (True, False)
    """
    return module_of_id(env_id) is not None or _is_registered(env_id)


def check_multi_id(env_id: str) -> None:
    """Check that an id names a multi-agent environment that is there.

    Raises:
        ImportError: Its library is not installed; the message says what installs it.
        ValueError: There is none; the nearest are named.
    """
    if why_not_native(env_id, {}) is not None:  # which needs no library
        _maker_of_id(env_id, {})


def make_one_by_id(env_id: str, **kwargs: Any) -> Any:
    """The environment that an id names, with PettingZoo's interface; `kwargs` are for its maker.

    Example:
        >>> make_one_by_id("mpe2/simple_spread_v3", N=2).possible_agents
        ['agent_0', 'agent_1']
    """
    return _maker_of_id(env_id, kwargs)()


def _made(
    env: Any, n_envs: int | None, mode: str, groups: Groups | str | None, kwargs: dict[str, Any]
) -> MultiAgentVectorEnv:
    if isinstance(env, MultiAgentVectorEnv):
        _check_made(mode, kwargs)
        _check_groups(env, groups)
        if n_envs not in (None, env.num_envs):
            raise ValueError(f"n_envs must be {env.num_envs} like the env's, got {n_envs}")
        return env
    if _is_single(env):
        return _single(env, n_envs, mode, groups, kwargs)
    if hasattr(env, "possible_agents") and not isinstance(env, type):
        _check_made(mode, kwargs)
        if n_envs not in (None, 1):
            raise ValueError(f"n_envs must be 1 for a single environment, got {n_envs}")
        return PettingZooVectorEnv([lambda: env], groups=groups)
    if mode in ("auto", "native"):
        why_not = why_not_native(env, kwargs)
        if why_not is None:
            return NativeMultiAgentEnv(env, int(n_envs or 1), groups=groups, **kwargs)
        if mode == "native":
            raise ValueError(f'mode must not be "native": {why_not}')
    mode = "sync" if mode == "auto" else mode
    if isinstance(env, str):
        makers = [_maker_of_id(env, kwargs)] * int(n_envs or 1)
        return PettingZooVectorEnv(makers, mode=mode, groups=groups)
    return _of_maker(env, n_envs, mode, groups, kwargs)


def _of_maker(
    env: Any, n_envs: int | None, mode: str, groups: Groups | str | None, kwargs: dict[str, Any]
) -> MultiAgentVectorEnv:
    if not callable(env):
        raise TypeError(
            "env must be an id, an environment of PettingZoo or Gymnasium, a callable that makes "
            f"one, or a MultiAgentVectorEnv, got {type(env).__module__}.{type(env).__qualname__}"
        )
    maker = partial(env, **kwargs) if kwargs else env
    first = make_one(maker, 0)
    if isinstance(first, gym.Env):
        first.close()
        return _single(env, n_envs, mode, groups, kwargs)
    makers = [partial(_taken, [first], maker), *[maker] * (int(n_envs or 1) - 1)]
    return PettingZooVectorEnv(makers, mode=mode, groups=groups)


def _taken(made: list[Any], maker: Callable[[], Any]) -> Any:
    """An environment that is made already, and another one if there is none left."""
    return made.pop() if made else maker()


def _is_single(env: Any) -> bool:
    """Return whether something is, or by its id names, an environment of one agent."""
    if isinstance(env, str):
        return not is_multi_id(env)
    return isinstance(env, VectorEnv | gym.Env) or is_envpool(env) or is_tensor_env(env)


def _single(
    env: Any, n_envs: int | None, mode: str, groups: Groups | str | None, kwargs: dict[str, Any]
) -> MultiAgentVectorEnv:
    try:
        single = SingleAgentVectorEnv(make_vec_env(env, n_envs, mode=mode, env_kwargs=kwargs))
    except ValueError as error:
        nearest = _nearest(env) if isinstance(env, str) and env not in gym.registry else []
        if not nearest:
            raise
        raise ValueError(f"{error}; of many agents the nearest are {', '.join(nearest)}") from error
    try:
        _check_groups(single, groups)
    except BaseException:
        if single.env is not env:
            single.close()
        raise
    return single


def _check_made(mode: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ValueError("env_kwargs must not be given with an environment that is already made")
    if mode in ("native", "async"):
        raise ValueError(f'mode must not be "{mode}" with an environment that is already made')


def _check_groups(env: MultiAgentVectorEnv, groups: Groups | str | None) -> None:
    if isinstance(groups, str) and groups == EACH:
        groups = {agent: [agent] for agent in env.agents}
    if isinstance(groups, str):
        raise TypeError(f'groups must be a mapping of names to agents or "each", got {groups!r}')
    own = {name: list(agents) for name, agents in env.groups.items()}
    if groups is not None and {name: list(agents) for name, agents in groups.items()} != own:
        raise ValueError(f"groups must be {own} like the env's, got {groups}")


def _is_registered(env_id: str) -> bool:
    """Return whether PettingZoo has an id in its own registry, such as "classic/rps-v2"."""
    if env_id in gym.registry or "/" not in env_id:
        return False
    if importlib.util.find_spec("pettingzoo") is None:
        return False
    return env_id in importlib.import_module("pettingzoo").aec_registry


def _nearest(env_id: str) -> list[str]:
    asked = env_id.lower().replace(".", "/")
    ids = multi_env_ids()
    names = {name.rpartition("/")[2]: name for name in ids}
    found = difflib.get_close_matches(asked, ids, n=3, cutoff=0.75)
    found += [
        names[name]
        for name in difflib.get_close_matches(asked.rpartition("/")[2], names, n=3, cutoff=0.75)
    ]
    return list(dict.fromkeys(found))[:3]


def _maker_of_id(env_id: str, kwargs: dict[str, Any]) -> Callable[[], Any]:
    if _is_registered(env_id):
        return partial(_from_registry, env_id, kwargs)
    module = module_of_id(env_id)
    if module is None:
        raise _unknown(env_id)
    package, _, name = module.partition(".")
    if package in ("mpe2", "pettingzoo"):
        require(package, extra="multi")
    if package == "pettingzoo":
        # Its modules of the old names warn that there is a registry.
        registered = re.sub(r"_v(\d+)$", r"-v\1", name.replace(".", "/"))
        if _is_registered(registered):
            return partial(_from_registry, registered, kwargs)
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise _unknown(env_id)
    return partial(_from_module, module, kwargs)


def _from_registry(env_id: str, kwargs: dict[str, Any]) -> Any:
    pettingzoo = require("pettingzoo", extra="multi")
    kind = "parallel" if env_id in pettingzoo.parallel_registry else "aec"
    return pettingzoo.make(kind, env_id, **kwargs)


def _from_module(module: str, kwargs: dict[str, Any]) -> Any:
    contents = importlib.import_module(module)
    for name in ("parallel_env", "env"):
        if callable(getattr(contents, name, None)):
            return getattr(contents, name)(**kwargs)
    raise TypeError(f"env must name a module with a parallel_env or env, {module} has neither")


def _unknown(env_id: str) -> ValueError:
    message = f"env must be the id of an environment, got {env_id!r}"
    nearest = _nearest(env_id)
    return ValueError(f"{message}; the nearest are {', '.join(nearest)}" if nearest else message)
