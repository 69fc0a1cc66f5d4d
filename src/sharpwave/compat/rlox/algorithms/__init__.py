"""Algorithms under rlox's names. HybridPPO is in its module alone, as in rlox."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sharpwave.compat.rlox.absent import reason_for
from sharpwave.compat.rlox.algorithms import hybrid_ppo as hybrid_ppo
from sharpwave.compat.rlox.algorithms.a2c import A2C
from sharpwave.compat.rlox.algorithms.bc import BC
from sharpwave.compat.rlox.algorithms.cql import CQL
from sharpwave.compat.rlox.algorithms.dqn import DQN
from sharpwave.compat.rlox.algorithms.dreamer import DreamerV3
from sharpwave.compat.rlox.algorithms.impala import IMPALA
from sharpwave.compat.rlox.algorithms.iql import IQL
from sharpwave.compat.rlox.algorithms.mappo import MAPPO
from sharpwave.compat.rlox.algorithms.ppo import PPO
from sharpwave.compat.rlox.algorithms.sac import SAC
from sharpwave.compat.rlox.algorithms.td3 import TD3
from sharpwave.compat.rlox.algorithms.td3_bc import TD3BC
from sharpwave.compat.rlox.config import PPOConfig

if TYPE_CHECKING:
    from sharpwave.compat.rlox.algorithms.best_of_n import BestOfN as BestOfN
    from sharpwave.compat.rlox.algorithms.dpo import DPO as DPO
    from sharpwave.compat.rlox.algorithms.grpo import GRPO as GRPO
    from sharpwave.compat.rlox.algorithms.online_dpo import OnlineDPO as OnlineDPO

__all__ = [
    "A2C",
    "BC",
    "CQL",
    "DQN",
    "IMPALA",
    "IQL",
    "MAPPO",
    "PPO",
    "SAC",
    "TD3",
    "TD3BC",
    "DreamerV3",
    "PPOConfig",
]

# Language models import torch, which others may do without.
LANGUAGE = {"BestOfN": "best_of_n", "DPO": "dpo", "GRPO": "grpo", "OnlineDPO": "online_dpo"}


def __getattr__(name: str) -> Any:
    if name in LANGUAGE:
        return getattr(importlib.import_module(f"{__name__}.{LANGUAGE[name]}"), name)
    if name in LANGUAGE.values():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(reason_for(name) or f"module {__name__!r} has no attribute {name!r}")
