"""The state of one environment with its wrappers, as nested dicts of arrays and JSON values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import wrappers

__all__ = ["GETTERS", "SETTERS", "bit_generator", "checked_state"]

Env = gym.Env[Any, Any]
Value = Any
"""A number, string, None or array, or a list or dict of values."""

# Of Gymnasium's wrappers, those that only look at or transform what passes through.
STATELESS = (
    "ClipAction",
    "ClipReward",
    "DiscretizeAction",
    "DiscretizeObservation",
    "DtypeObservation",
    "FilterObservation",
    "FlattenObservation",
    "GrayscaleObservation",
    "PassiveEnvChecker",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "TransformAction",
    "TransformObservation",
    "TransformReward",
)

# What decides what a wrapper does next. Not every version of Gymnasium has every wrapper.
WRAPPER_STATE: dict[type, tuple[str, ...]] = {
    wrappers.OrderEnforcing: ("_has_reset",),
    wrappers.TimeLimit: ("_elapsed_steps",),
    wrappers.RecordEpisodeStatistics: ("episode_count", "episode_returns", "episode_lengths"),
    **{getattr(wrappers, name): () for name in STATELESS if hasattr(wrappers, name)},
}


def get_subenv_state(env: Env) -> dict[str, Value] | None:
    """The state of an environment and its wrappers.

    The base environment, and every wrapper that is not one of Gymnasium's known ones, must offer
    its state by `get_state()` and take it by `set_state(state)`. The random number generators of
    all layers are part of the state.

    Returns:
        None where a layer does not offer its state.

    Raises:
        TypeError: A layer's state has values that cannot be saved.
    """
    states = []
    for layer in _layers(env):
        if _offers_state(layer):
            name = f"{type(layer).__name__}.get_state()"
            states.append(checked_state(layer.get_state(), name))  # type: ignore[attr-defined]
        elif type(layer) in WRAPPER_STATE:
            names = WRAPPER_STATE[type(layer)]
            states.append({name: checked_state(getattr(layer, name), name) for name in names})
        else:
            return None
    return {"layers": states, "random": get_random_states(env)}


def set_subenv_state(env: Env, state: dict[str, Value]) -> None:
    """Take over what `get_subenv_state` gave of an environment made alike."""
    layers = _layers_like(env, state["layers"])
    for layer, saved in zip(layers, state["layers"], strict=True):
        if _offers_state(layer):
            layer.set_state(saved)  # type: ignore[attr-defined]
        else:
            for name in WRAPPER_STATE[type(layer)]:
                setattr(layer, name, saved[name])
        if isinstance(layer, wrappers.PassiveEnvChecker):  # which checks against a reset of its own
            vars(layer).update({x: True for x in vars(layer) if x.startswith("checked_")})
    set_random_states(env, state["random"])


def get_random_states(env: Env) -> list[Value]:
    """The state of the random number generator of each layer, None for layers without one."""
    return [
        None if rng is None else rng.bit_generator.state
        for rng in (vars(layer).get("_np_random") for layer in _layers(env))
    ]


def set_random_states(env: Env, states: list[Value]) -> None:
    """Take over what `get_random_states` gave of an environment made alike."""
    layers = _layers(env)
    if len(layers) != len(states):
        raise ValueError(
            f"env must have {len(states)} layers like the saved one, got {len(layers)}"
        )
    for layer, state in zip(layers, states, strict=True):
        if state is None:
            continue
        rng = vars(layer).get("_np_random")
        if rng is None or type(rng.bit_generator).__name__ != state["bit_generator"]:
            rng = np.random.Generator(bit_generator(state["bit_generator"])())
            layer._np_random = rng
        rng.bit_generator.state = state


def bit_generator(name: str) -> type[np.random.BitGenerator]:
    """A kind of NumPy's generators; nothing else that has a name there."""
    kind = vars(np.random).get(name)
    if isinstance(kind, type) and issubclass(kind, np.random.BitGenerator):
        return kind
    raise ValueError(f"bit_generator must be one of NumPy's, got {name!r}")


def _layers(env: Env) -> list[Env]:
    """The environment with its wrappers, outermost first."""
    layers = [env]
    while isinstance(env, gym.Wrapper):
        env = env.env
        layers.append(env)
    return layers


def _layers_like(env: Env, saved: list[Value]) -> list[Env]:
    layers = _layers(env)
    if len(layers) != len(saved):
        raise ValueError(
            f"env must have {len(saved)} layers like the saved one, got {len(layers)}: {env}"
        )
    return layers


def _offers_state(layer: Env) -> bool:
    return all(callable(getattr(type(layer), name, None)) for name in ("get_state", "set_state"))


def checked_state(value: Any, name: str) -> Value:
    """The value of a state, called `name`, with NumPy's scalars as Python's.

    Raises:
        TypeError: It cannot be saved.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.copy()
    if isinstance(value, list):
        return [checked_state(inner, f"{name}[{i}]") for i, inner in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: checked_state(inner, f"{name}[{key!r}]") for key, inner in value.items()}
    raise TypeError(
        f"{name} must be an array, number, string, None, or a list or dict of them, "
        f"got {type(value).__name__}"
    )


GETTERS: dict[str, Callable[[Env], Any]] = {
    "state": get_subenv_state,
    "random": get_random_states,
}
SETTERS: dict[str, Callable[[Env, Any], None]] = {
    "state": set_subenv_state,
    "random": set_random_states,
}
