"""Fleets of actors, whose unrolls a learner takes; no mathematics, no torch."""

from sharpwave.distributed.actors import Block, FleetActor
from sharpwave.distributed.collector import FleetCollector
from sharpwave.distributed.fleet import Fleet, FleetStats, Unroll
from sharpwave.distributed.threads import ThreadFleet

__all__ = [
    "Block",
    "Fleet",
    "FleetActor",
    "FleetCollector",
    "FleetStats",
    "ThreadFleet",
    "Unroll",
]
