"""Algorithms under rlox's names. HybridPPO is in its module alone, as in rlox."""

from __future__ import annotations

from typing import Any

from sharpwave.compat.rlox.absent import reason_for
from sharpwave.compat.rlox.algorithms import hybrid_ppo as hybrid_ppo
from sharpwave.compat.rlox.algorithms.a2c import A2C
from sharpwave.compat.rlox.algorithms.bc import BC
from sharpwave.compat.rlox.algorithms.cql import CQL
from sharpwave.compat.rlox.algorithms.dqn import DQN
from sharpwave.compat.rlox.algorithms.iql import IQL
from sharpwave.compat.rlox.algorithms.ppo import PPO
from sharpwave.compat.rlox.algorithms.sac import SAC
from sharpwave.compat.rlox.algorithms.td3 import TD3
from sharpwave.compat.rlox.algorithms.td3_bc import TD3BC
from sharpwave.compat.rlox.config import PPOConfig

__all__ = ["A2C", "BC", "CQL", "DQN", "IQL", "PPO", "SAC", "TD3", "TD3BC", "PPOConfig"]


def __getattr__(name: str) -> Any:
    raise AttributeError(reason_for(name) or f"module {__name__!r} has no attribute {name!r}")
