"""Algorithms by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from sharpwave.nearest import did_you_mean

if TYPE_CHECKING:
    from sharpwave.train.algorithm import Algorithm

_CLASSES = {
    "ppo": "sharpwave.algorithms.ppo:PPO",
    "hybrid_ppo": "sharpwave.algorithms.hybrid_ppo:HybridPPO",
    "a2c": "sharpwave.algorithms.a2c:A2C",
    "dqn": "sharpwave.algorithms.dqn:DQN",
    "c51": "sharpwave.algorithms.c51:C51",
    "qr_dqn": "sharpwave.algorithms.qr_dqn:QRDQN",
    "sac": "sharpwave.algorithms.sac:SAC",
    "td3_bc": "sharpwave.algorithms.td3_bc:TD3BC",
    "rebrac": "sharpwave.algorithms.rebrac:ReBRAC",
    "iql": "sharpwave.algorithms.iql:IQL",
    "cql": "sharpwave.algorithms.cql:CQL",
    "bc": "sharpwave.algorithms.bc:BC",
    "td3": "sharpwave.algorithms.td3:TD3",
    "ddpg": "sharpwave.algorithms.ddpg:DDPG",
    "tqc": "sharpwave.algorithms.tqc:TQC",
    "crossq": "sharpwave.algorithms.crossq:CrossQ",
    "discrete_sac": "sharpwave.algorithms.discrete_sac:DiscreteSAC",
}


def algorithm_names() -> list[str]:
    """The names that `algorithm_class` knows."""
    return list(_CLASSES)


def algorithm_class(name: str) -> type[Algorithm]:
    """The class of an algorithm.

    Raises:
        ValueError: There is none of that name.

    Example:
        >>> algorithm_class("ppo").__name__
        'PPO'
    """
    if name.lower() not in _CLASSES:
        raise ValueError(
            f"unknown algorithm {name!r}{did_you_mean(name, _CLASSES)} "
            f"(there are {', '.join(_CLASSES)})"
        )
    module, _, attribute = _CLASSES[name.lower()].partition(":")
    found: type[Algorithm] = getattr(importlib.import_module(module), attribute)
    return found
