"""Algorithms, one file each.

They are imported at their first use, so that a run pays for its own algorithm alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import algorithm_class, algorithm_names

if TYPE_CHECKING:
    from sharpwave.algorithms.a2c import A2C as A2C
    from sharpwave.algorithms.a2c import A2CConfig as A2CConfig
    from sharpwave.algorithms.bc import BC as BC
    from sharpwave.algorithms.bc import BCConfig as BCConfig
    from sharpwave.algorithms.c51 import C51 as C51
    from sharpwave.algorithms.c51 import C51Config as C51Config
    from sharpwave.algorithms.cql import CQL as CQL
    from sharpwave.algorithms.cql import CQLConfig as CQLConfig
    from sharpwave.algorithms.crossq import CrossQ as CrossQ
    from sharpwave.algorithms.crossq import CrossQConfig as CrossQConfig
    from sharpwave.algorithms.ddpg import DDPG as DDPG
    from sharpwave.algorithms.ddpg import DDPGConfig as DDPGConfig
    from sharpwave.algorithms.discrete_sac import DiscreteSAC as DiscreteSAC
    from sharpwave.algorithms.discrete_sac import DiscreteSACConfig as DiscreteSACConfig
    from sharpwave.algorithms.dqn import DQN as DQN
    from sharpwave.algorithms.dqn import DQNConfig as DQNConfig
    from sharpwave.algorithms.iql import IQL as IQL
    from sharpwave.algorithms.iql import IQLConfig as IQLConfig
    from sharpwave.algorithms.ppo import PPO as PPO
    from sharpwave.algorithms.ppo import PPOConfig as PPOConfig
    from sharpwave.algorithms.qr_dqn import QRDQN as QRDQN
    from sharpwave.algorithms.qr_dqn import QRDQNConfig as QRDQNConfig
    from sharpwave.algorithms.rebrac import ReBRAC as ReBRAC
    from sharpwave.algorithms.rebrac import ReBRACConfig as ReBRACConfig
    from sharpwave.algorithms.sac import SAC as SAC
    from sharpwave.algorithms.sac import SACConfig as SACConfig
    from sharpwave.algorithms.td3 import TD3 as TD3
    from sharpwave.algorithms.td3 import TD3Config as TD3Config
    from sharpwave.algorithms.td3_bc import TD3BC as TD3BC
    from sharpwave.algorithms.td3_bc import TD3BCConfig as TD3BCConfig
    from sharpwave.algorithms.tqc import TQC as TQC
    from sharpwave.algorithms.tqc import TQCConfig as TQCConfig

_MODULES = {
    "A2C": "a2c",
    "A2CConfig": "a2c",
    "BC": "bc",
    "BCConfig": "bc",
    "C51": "c51",
    "C51Config": "c51",
    "CQL": "cql",
    "CQLConfig": "cql",
    "CrossQ": "crossq",
    "CrossQConfig": "crossq",
    "DDPG": "ddpg",
    "DDPGConfig": "ddpg",
    "DQN": "dqn",
    "DQNConfig": "dqn",
    "DiscreteSAC": "discrete_sac",
    "DiscreteSACConfig": "discrete_sac",
    "IQL": "iql",
    "IQLConfig": "iql",
    "PPO": "ppo",
    "PPOConfig": "ppo",
    "QRDQN": "qr_dqn",
    "QRDQNConfig": "qr_dqn",
    "ReBRAC": "rebrac",
    "ReBRACConfig": "rebrac",
    "SAC": "sac",
    "SACConfig": "sac",
    "TD3": "td3",
    "TD3BC": "td3_bc",
    "TD3BCConfig": "td3_bc",
    "TD3Config": "td3",
    "TQC": "tqc",
    "TQCConfig": "tqc",
}

__all__ = [
    "A2C",
    "BC",
    "C51",
    "CQL",
    "DDPG",
    "DQN",
    "IQL",
    "PPO",
    "QRDQN",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "A2CConfig",
    "BCConfig",
    "C51Config",
    "CQLConfig",
    "CrossQ",
    "CrossQConfig",
    "DDPGConfig",
    "DQNConfig",
    "DiscreteSAC",
    "DiscreteSACConfig",
    "IQLConfig",
    "PPOConfig",
    "QRDQNConfig",
    "ReBRAC",
    "ReBRACConfig",
    "SACConfig",
    "TD3BCConfig",
    "TD3Config",
    "TQCConfig",
    "algorithm_class",
    "algorithm_names",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without coming here again
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
