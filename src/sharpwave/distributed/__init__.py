"""Distributed training: fleets of actors for a learner, and remote environments; no torch.

Belongs here: what runs in other processes or on other machines, and the wire to it: actors,
environments, shards.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharpwave.distributed.actors import Block, FleetActor
    from sharpwave.distributed.choose import Listening, make_fleet
    from sharpwave.distributed.collector import FleetCollector
    from sharpwave.distributed.envs import EnvServer, RemoteEnvPool, RemoteVectorEnv
    from sharpwave.distributed.fleet import Fleet, FleetStats, Unroll
    from sharpwave.distributed.processes import ProcessFleet
    from sharpwave.distributed.recipe import (
        ActorRecipe,
        EnvRecipe,
        Followers,
        PolicyRecipe,
        make_actor,
    )
    from sharpwave.distributed.security import TLS, Access
    from sharpwave.distributed.supervise import MOST_FAILURES, Lives
    from sharpwave.distributed.threads import ThreadFleet
    from sharpwave.distributed.workers import WorkerRecipe

# Names are imported when they are used: the process of an actor needs few of them.
_LAZY = {
    "MOST_FAILURES": "supervise",
    "TLS": "security",
    "Access": "security",
    "ActorRecipe": "recipe",
    "Block": "actors",
    "EnvRecipe": "recipe",
    "EnvServer": "envs",
    "Fleet": "fleet",
    "FleetActor": "actors",
    "FleetCollector": "collector",
    "FleetStats": "fleet",
    "Followers": "recipe",
    "Listening": "choose",
    "Lives": "supervise",
    "PolicyRecipe": "recipe",
    "ProcessFleet": "processes",
    "RemoteEnvPool": "envs",
    "RemoteVectorEnv": "envs",
    "ThreadFleet": "threads",
    "Unroll": "fleet",
    "WorkerRecipe": "workers",
    "make_actor": "recipe",
    "make_fleet": "choose",
}

__all__ = [
    "MOST_FAILURES",
    "TLS",
    "Access",
    "ActorRecipe",
    "Block",
    "EnvRecipe",
    "EnvServer",
    "Fleet",
    "FleetActor",
    "FleetCollector",
    "FleetStats",
    "Followers",
    "Listening",
    "Lives",
    "PolicyRecipe",
    "ProcessFleet",
    "RemoteEnvPool",
    "RemoteVectorEnv",
    "ThreadFleet",
    "Unroll",
    "WorkerRecipe",
    "make_actor",
    "make_fleet",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
