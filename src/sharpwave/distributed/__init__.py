"""Fleets of actors, whose unrolls a learner takes, and remote environments; no torch."""

from sharpwave.distributed.actors import Block, FleetActor
from sharpwave.distributed.choose import Listening, make_fleet
from sharpwave.distributed.collector import FleetCollector
from sharpwave.distributed.envs import EnvServer, RemoteEnvPool, RemoteVectorEnv
from sharpwave.distributed.fleet import Fleet, FleetStats, Unroll
from sharpwave.distributed.processes import ProcessFleet
from sharpwave.distributed.recipe import ActorRecipe, EnvRecipe, PolicyRecipe, make_actor
from sharpwave.distributed.security import TLS, Access
from sharpwave.distributed.supervise import MOST_FAILURES, Lives
from sharpwave.distributed.threads import ThreadFleet

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
    "Listening",
    "Lives",
    "PolicyRecipe",
    "ProcessFleet",
    "RemoteEnvPool",
    "RemoteVectorEnv",
    "ThreadFleet",
    "Unroll",
    "make_actor",
    "make_fleet",
]
