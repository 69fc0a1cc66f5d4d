"""Environments of fleets by id, for actors that are told nothing but ids."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym

from tests.envs import resumable
from tests.fleet_envs import Failing, Hanging, Infinite, Marked, Slow

MAKERS: dict[str, Any] = {
    "Resumable": resumable,
    "Failing": Failing,
    "Infinite": Infinite,
    "Slow": Slow,
    "Hanging": Hanging,
    "Marked": Marked,
}

for name, maker in MAKERS.items():
    # Nothing around them, so that they are what their makers make.
    gym.register(f"{name}-v0", entry_point=maker, order_enforce=False, disable_env_checker=True)


def id_of(world: Any) -> tuple[str, dict[str, Any]]:
    """The id of a world of the contract, and the arguments of its constructor."""
    if isinstance(world, str):
        return world, {}
    maker = world.func if isinstance(world, partial) else world
    name = next(name for name, one in MAKERS.items() if one is maker)
    given = world.args if isinstance(world, partial) else ()
    return f"{__name__}:{name}-v0", dict(zip(("in_step", "alone"), given, strict=False))
