"""Algorithms by name."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from sharpwave.core.suggest import did_you_mean

if TYPE_CHECKING:
    from sharpwave.agents import Agent

_CLASSES = {
    "ppo": "sharpwave.algorithms.ppo:PPO",
    "a2c": "sharpwave.algorithms.a2c:A2C",
    "hybrid_ppo": "sharpwave.algorithms.hybrid_ppo:HybridPPO",
    "impala": "sharpwave.algorithms.impala:IMPALA",
    "appo": "sharpwave.algorithms.appo:APPO",
    "mappo": "sharpwave.algorithms.mappo:MAPPO",
    "ippo": "sharpwave.algorithms.mappo:IPPO",
    "vdn": "sharpwave.algorithms.vdn:VDN",
    "qmix": "sharpwave.algorithms.qmix:QMIX",
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
    "dreamer_v3": "sharpwave.algorithms.dreamer:DreamerV3",
    "grpo": "sharpwave.algorithms.grpo:GRPO",
    "online_dpo": "sharpwave.algorithms.online_dpo:OnlineDPO",
    "dpo": "sharpwave.algorithms.dpo:DPO",
    "kto": "sharpwave.algorithms.kto:KTO",
    "sft": "sharpwave.algorithms.sft:SFT",
}

LANGUAGE_NAMES = ("grpo", "online_dpo", "dpo", "kto", "sft")
"""Those of them that train language models."""

_OWN: dict[str, Any] = {}
"""Those that users registered."""

_Class = TypeVar("_Class", bound=type)


def register(algorithm: _Class) -> _Class:
    """Let an algorithm of your own be found by its `name`.

    `Trainer` and checkpoints then find it, and `sharpwave train NAME --import MODULE` trains it,
    where the module registers it.

    Args:
        algorithm: The class; it is returned, so that this can decorate it.

    Raises:
        ValueError: The name is that of an algorithm of this library.
    """
    name: str = algorithm.name  # type: ignore[attr-defined]
    if name in _CLASSES:
        raise ValueError(f"name must be one of its own, got {name!r}, which sharpwave has")
    _OWN[name] = algorithm
    return algorithm


def source_names(algorithm: Any) -> set[str]:
    """The arguments by which a constructor takes what to learn from, or where to evaluate.

    Example:
        >>> sorted(source_names(algorithm_class("iql"))), source_names(algorithm_class("ppo"))
        (['dataset', 'env'], {'env_id'})
    """
    return {"env_id", "env", "dataset"} & inspect.signature(algorithm).parameters.keys()


def is_of_language(algorithm: Any) -> bool:
    """Return whether an algorithm trains a language model, which its constructor is given.

    Example:
        >>> is_of_language(algorithm_class("grpo")), is_of_language(algorithm_class("iql"))
        (True, False)
    """
    return "model" in inspect.signature(algorithm).parameters


def is_of_many_agents(algorithm: Any) -> bool:
    """Return whether an algorithm learns in multi-agent environments.

    Example:
        >>> is_of_many_agents(algorithm_class("mappo")), is_of_many_agents(algorithm_class("ppo"))
        (True, False)
    """
    return "n_agents" in inspect.signature(algorithm).parameters


def algorithm_names() -> list[str]:
    """The names that `algorithm_class` knows."""
    return [*_CLASSES, *_OWN]


def algorithm_class(name: str) -> type[Agent]:
    """The class of an algorithm; a dash may stand for an underscore of its name.

    Raises:
        ValueError: There is none of that name.

    Example:
        >>> algorithm_class("ppo").__name__, algorithm_class("online-dpo").__name__
        ('PPO', 'OnlineDPO')
    """
    key = name.lower().replace("-", "_")
    for known_as in (name.lower(), key):
        if known_as in _OWN:
            own: type[Agent] = _OWN[known_as]
            return own
    if key not in _CLASSES:
        known = algorithm_names()
        raise ValueError(
            f"unknown algorithm {name!r}{did_you_mean(name, known)} (there are {', '.join(known)})"
        )
    module, _, attribute = _CLASSES[key].partition(":")
    found: type[Agent] = getattr(importlib.import_module(module), attribute)
    return found
