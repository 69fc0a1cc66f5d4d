"""The state of one multi-agent environment with its wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sharpwave.envs.subenv_state import bit_generator, checked_state

__all__ = ["MULTI_GETTERS", "MULTI_SETTERS", "layers"]

# What decides what a layer does next, of those around an environment that have no `get_state`.
WRAPPER_STATE: dict[str, tuple[str, ...]] = {
    "AssertOutOfBoundsWrapper": (),
    "ClipOutOfBoundsWrapper": (),
    "OrderEnforcingWrapper": ("_has_reset", "_has_updated"),
    "TurnBased": (),
    "aec_to_parallel_wrapper": ("agents",),
}


def get_env_state(env: Any) -> dict[str, Any] | None:
    """The state of an environment and its wrappers, with their generators.

    The environment, and every wrapper that is none of PettingZoo's known ones, must offer its state
    by `get_state()` and take it by `set_state(state)`.

    Returns:
        None where a layer does not offer its state.

    Raises:
        TypeError: A layer's state has values that cannot be saved.
    """
    states = []
    for layer in layers(env):
        name = type(layer).__name__
        if _offers_state(layer):
            states.append(checked_state(layer.get_state(), f"{name}.get_state()"))
        elif name in WRAPPER_STATE:
            values = {x: _own(layer).get(x) for x in WRAPPER_STATE[name]}
            states.append(checked_state(values, name))
        else:
            return None
    return {"layers": states, "random": get_generators(env)}


def set_env_state(env: Any, state: dict[str, Any]) -> None:
    """Take over what `get_env_state` gave of an environment made alike."""
    for layer, saved in zip(_layers_like(env, state["layers"]), state["layers"], strict=True):
        if _offers_state(layer):
            layer.set_state(saved)
        else:
            _own(layer).update(saved)
    set_generators(env, state["random"])


def get_generators(env: Any) -> list[dict[str, Any]]:
    """The state of NumPy's generators of each layer, by the attribute that they are."""
    return [
        {
            name: value.bit_generator.state
            for name, value in _own(layer).items()
            if isinstance(value, np.random.Generator)
        }
        for layer in layers(env)
    ]


def set_generators(env: Any, states: list[dict[str, Any]]) -> None:
    """Take over what `get_generators` gave of an environment made alike."""
    for layer, saved in zip(_layers_like(env, states), states, strict=True):
        for name, state in saved.items():
            generator = _own(layer).get(name)
            kind = bit_generator(state["bit_generator"])
            if not isinstance(generator, np.random.Generator) or not isinstance(
                generator.bit_generator, kind
            ):
                generator = np.random.Generator(kind())
                setattr(layer, name, generator)
            generator.bit_generator.state = state


def layers(env: Any) -> list[Any]:
    """The environment with its wrappers, outermost first."""
    found = [env]
    while hasattr(inner := _inner(found[-1]), "possible_agents"):
        found.append(inner)
    return found


def _inner(layer: Any) -> Any:
    return _own(layer).get("env", _own(layer).get("aec_env"))


def _own(layer: Any) -> dict[str, Any]:
    return getattr(layer, "__dict__", {})


def _layers_like(env: Any, saved: list[Any]) -> list[Any]:
    found = layers(env)
    if len(found) != len(saved):
        raise ValueError(
            f"env must have {len(saved)} layers like the saved one, got {len(found)}: {env}"
        )
    return found


def _offers_state(layer: Any) -> bool:
    return all(callable(getattr(type(layer), name, None)) for name in ("get_state", "set_state"))


MULTI_GETTERS: dict[str, Callable[[Any], Any]] = {"state": get_env_state, "random": get_generators}
MULTI_SETTERS: dict[str, Callable[[Any, Any], None]] = {
    "state": set_env_state,
    "random": set_generators,
}
