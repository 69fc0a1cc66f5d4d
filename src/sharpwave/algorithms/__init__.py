"""Algorithms, one file each.

Belongs here: one file for each algorithm, with its Config, Learner and agent.

They are imported at their first use, so that a run pays for its own algorithm alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import algorithm_class, algorithm_names, register

if TYPE_CHECKING:
    from sharpwave.algorithms.a2c import A2C as A2C
    from sharpwave.algorithms.a2c import A2CConfig as A2CConfig
    from sharpwave.algorithms.a2c import A2CLearner as A2CLearner
    from sharpwave.algorithms.appo import APPO as APPO
    from sharpwave.algorithms.appo import APPOConfig as APPOConfig
    from sharpwave.algorithms.appo import APPOLearner as APPOLearner
    from sharpwave.algorithms.bc import BC as BC
    from sharpwave.algorithms.bc import BCConfig as BCConfig
    from sharpwave.algorithms.bc import BCLearner as BCLearner
    from sharpwave.algorithms.c51 import C51 as C51
    from sharpwave.algorithms.c51 import C51Config as C51Config
    from sharpwave.algorithms.c51 import C51Learner as C51Learner
    from sharpwave.algorithms.cql import CQL as CQL
    from sharpwave.algorithms.cql import CQLConfig as CQLConfig
    from sharpwave.algorithms.cql import CQLLearner as CQLLearner
    from sharpwave.algorithms.crossq import CrossQ as CrossQ
    from sharpwave.algorithms.crossq import CrossQConfig as CrossQConfig
    from sharpwave.algorithms.crossq import CrossQLearner as CrossQLearner
    from sharpwave.algorithms.curious_ppo import Curiosity as Curiosity
    from sharpwave.algorithms.curious_ppo import CuriousPPOLearner as CuriousPPOLearner
    from sharpwave.algorithms.ddpg import DDPG as DDPG
    from sharpwave.algorithms.ddpg import DDPGConfig as DDPGConfig
    from sharpwave.algorithms.discrete_sac import DiscreteSAC as DiscreteSAC
    from sharpwave.algorithms.discrete_sac import DiscreteSACConfig as DiscreteSACConfig
    from sharpwave.algorithms.discrete_sac import DiscreteSACLearner as DiscreteSACLearner
    from sharpwave.algorithms.distillation import DistillationLearner as DistillationLearner
    from sharpwave.algorithms.dpo import DPO as DPO
    from sharpwave.algorithms.dpo import DPOConfig as DPOConfig
    from sharpwave.algorithms.dpo import DPOLearner as DPOLearner
    from sharpwave.algorithms.dqn import DQN as DQN
    from sharpwave.algorithms.dqn import DQNConfig as DQNConfig
    from sharpwave.algorithms.dqn import DQNLearner as DQNLearner
    from sharpwave.algorithms.dreamer import DreamerV3 as DreamerV3
    from sharpwave.algorithms.dreamer import DreamerV3Config as DreamerV3Config
    from sharpwave.algorithms.dreamer import DreamerV3Learner as DreamerV3Learner
    from sharpwave.algorithms.grpo import GRPO as GRPO
    from sharpwave.algorithms.grpo import GRPOConfig as GRPOConfig
    from sharpwave.algorithms.grpo import GRPOLearner as GRPOLearner
    from sharpwave.algorithms.hybrid_ppo import HybridPPO as HybridPPO
    from sharpwave.algorithms.hybrid_ppo import HybridPPOConfig as HybridPPOConfig
    from sharpwave.algorithms.impala import IMPALA as IMPALA
    from sharpwave.algorithms.impala import IMPALAConfig as IMPALAConfig
    from sharpwave.algorithms.impala import IMPALALearner as IMPALALearner
    from sharpwave.algorithms.iql import IQL as IQL
    from sharpwave.algorithms.iql import IQLConfig as IQLConfig
    from sharpwave.algorithms.iql import IQLLearner as IQLLearner
    from sharpwave.algorithms.kto import KTO as KTO
    from sharpwave.algorithms.kto import KTOConfig as KTOConfig
    from sharpwave.algorithms.kto import KTOLearner as KTOLearner
    from sharpwave.algorithms.mappo import IPPO as IPPO
    from sharpwave.algorithms.mappo import MAPPO as MAPPO
    from sharpwave.algorithms.mappo import IPPOConfig as IPPOConfig
    from sharpwave.algorithms.mappo import MAPPOConfig as MAPPOConfig
    from sharpwave.algorithms.mappo import MAPPOLearner as MAPPOLearner
    from sharpwave.algorithms.online_dpo import OnlineDPO as OnlineDPO
    from sharpwave.algorithms.online_dpo import OnlineDPOConfig as OnlineDPOConfig
    from sharpwave.algorithms.online_dpo import OnlineDPOLearner as OnlineDPOLearner
    from sharpwave.algorithms.ppo import PPO as PPO
    from sharpwave.algorithms.ppo import PPOConfig as PPOConfig
    from sharpwave.algorithms.ppo import PPOLearner as PPOLearner
    from sharpwave.algorithms.qmix import QMIX as QMIX
    from sharpwave.algorithms.qmix import QMIXConfig as QMIXConfig
    from sharpwave.algorithms.qmix import QMIXLearner as QMIXLearner
    from sharpwave.algorithms.qr_dqn import QRDQN as QRDQN
    from sharpwave.algorithms.qr_dqn import QRDQNConfig as QRDQNConfig
    from sharpwave.algorithms.qr_dqn import QRDQNLearner as QRDQNLearner
    from sharpwave.algorithms.rebrac import ReBRAC as ReBRAC
    from sharpwave.algorithms.rebrac import ReBRACConfig as ReBRACConfig
    from sharpwave.algorithms.rebrac import ReBRACLearner as ReBRACLearner
    from sharpwave.algorithms.sac import SAC as SAC
    from sharpwave.algorithms.sac import SACConfig as SACConfig
    from sharpwave.algorithms.sac import SACLearner as SACLearner
    from sharpwave.algorithms.sft import SFT as SFT
    from sharpwave.algorithms.sft import SFTConfig as SFTConfig
    from sharpwave.algorithms.sft import SFTLearner as SFTLearner
    from sharpwave.algorithms.symmetric_ppo import SymmetricPPOLearner as SymmetricPPOLearner
    from sharpwave.algorithms.td3 import TD3 as TD3
    from sharpwave.algorithms.td3 import TD3Config as TD3Config
    from sharpwave.algorithms.td3 import TD3Learner as TD3Learner
    from sharpwave.algorithms.td3_bc import TD3BC as TD3BC
    from sharpwave.algorithms.td3_bc import TD3BCConfig as TD3BCConfig
    from sharpwave.algorithms.td3_bc import TD3BCLearner as TD3BCLearner
    from sharpwave.algorithms.tqc import TQC as TQC
    from sharpwave.algorithms.tqc import TQCConfig as TQCConfig
    from sharpwave.algorithms.tqc import TQCLearner as TQCLearner
    from sharpwave.algorithms.vdn import VDN as VDN
    from sharpwave.algorithms.vdn import VDNConfig as VDNConfig
    from sharpwave.algorithms.vdn import VDNLearner as VDNLearner

_MODULES = {
    "A2C": "a2c",
    "A2CConfig": "a2c",
    "A2CLearner": "a2c",
    "BC": "bc",
    "BCConfig": "bc",
    "BCLearner": "bc",
    "C51": "c51",
    "C51Config": "c51",
    "C51Learner": "c51",
    "CQL": "cql",
    "CQLConfig": "cql",
    "CQLLearner": "cql",
    "CrossQ": "crossq",
    "CrossQConfig": "crossq",
    "CrossQLearner": "crossq",
    "Curiosity": "curious_ppo",
    "CuriousPPOLearner": "curious_ppo",
    "DDPG": "ddpg",
    "DDPGConfig": "ddpg",
    "DPO": "dpo",
    "DPOConfig": "dpo",
    "DPOLearner": "dpo",
    "DQN": "dqn",
    "DQNConfig": "dqn",
    "DQNLearner": "dqn",
    "DiscreteSAC": "discrete_sac",
    "DistillationLearner": "distillation",
    "DiscreteSACConfig": "discrete_sac",
    "DiscreteSACLearner": "discrete_sac",
    "DreamerV3": "dreamer",
    "DreamerV3Config": "dreamer",
    "DreamerV3Learner": "dreamer",
    "HybridPPO": "hybrid_ppo",
    "HybridPPOConfig": "hybrid_ppo",
    "GRPO": "grpo",
    "GRPOConfig": "grpo",
    "GRPOLearner": "grpo",
    "APPO": "appo",
    "APPOConfig": "appo",
    "APPOLearner": "appo",
    "IMPALA": "impala",
    "IMPALAConfig": "impala",
    "IMPALALearner": "impala",
    "IQL": "iql",
    "IQLConfig": "iql",
    "IQLLearner": "iql",
    "KTO": "kto",
    "KTOConfig": "kto",
    "KTOLearner": "kto",
    "IPPO": "mappo",
    "IPPOConfig": "mappo",
    "MAPPO": "mappo",
    "MAPPOConfig": "mappo",
    "MAPPOLearner": "mappo",
    "OnlineDPO": "online_dpo",
    "OnlineDPOConfig": "online_dpo",
    "OnlineDPOLearner": "online_dpo",
    "PPO": "ppo",
    "PPOConfig": "ppo",
    "PPOLearner": "ppo",
    "QMIX": "qmix",
    "QMIXConfig": "qmix",
    "QMIXLearner": "qmix",
    "QRDQN": "qr_dqn",
    "QRDQNConfig": "qr_dqn",
    "QRDQNLearner": "qr_dqn",
    "ReBRAC": "rebrac",
    "ReBRACConfig": "rebrac",
    "ReBRACLearner": "rebrac",
    "SAC": "sac",
    "SACConfig": "sac",
    "SACLearner": "sac",
    "SFT": "sft",
    "SFTConfig": "sft",
    "SFTLearner": "sft",
    "SymmetricPPOLearner": "symmetric_ppo",
    "TD3": "td3",
    "TD3BC": "td3_bc",
    "TD3BCConfig": "td3_bc",
    "TD3BCLearner": "td3_bc",
    "TD3Config": "td3",
    "TD3Learner": "td3",
    "TQC": "tqc",
    "TQCConfig": "tqc",
    "TQCLearner": "tqc",
    "VDN": "vdn",
    "VDNConfig": "vdn",
    "VDNLearner": "vdn",
}

__all__ = [
    "A2C",
    "APPO",
    "BC",
    "C51",
    "CQL",
    "DDPG",
    "DPO",
    "DQN",
    "GRPO",
    "IMPALA",
    "IPPO",
    "IQL",
    "KTO",
    "MAPPO",
    "PPO",
    "QMIX",
    "QRDQN",
    "SAC",
    "SFT",
    "TD3",
    "TD3BC",
    "TQC",
    "VDN",
    "A2CConfig",
    "A2CLearner",
    "APPOConfig",
    "APPOLearner",
    "BCConfig",
    "BCLearner",
    "C51Config",
    "C51Learner",
    "CQLConfig",
    "CQLLearner",
    "CrossQ",
    "CrossQConfig",
    "CrossQLearner",
    "Curiosity",
    "CuriousPPOLearner",
    "DDPGConfig",
    "DPOConfig",
    "DPOLearner",
    "DQNConfig",
    "DQNLearner",
    "DiscreteSAC",
    "DiscreteSACConfig",
    "DiscreteSACLearner",
    "DistillationLearner",
    "DreamerV3",
    "DreamerV3Config",
    "DreamerV3Learner",
    "GRPOConfig",
    "GRPOLearner",
    "HybridPPO",
    "HybridPPOConfig",
    "IMPALAConfig",
    "IMPALALearner",
    "IPPOConfig",
    "IQLConfig",
    "IQLLearner",
    "KTOConfig",
    "KTOLearner",
    "MAPPOConfig",
    "MAPPOLearner",
    "OnlineDPO",
    "OnlineDPOConfig",
    "OnlineDPOLearner",
    "PPOConfig",
    "PPOLearner",
    "QMIXConfig",
    "QMIXLearner",
    "QRDQNConfig",
    "QRDQNLearner",
    "ReBRAC",
    "ReBRACConfig",
    "ReBRACLearner",
    "SACConfig",
    "SACLearner",
    "SFTConfig",
    "SFTLearner",
    "SymmetricPPOLearner",
    "TD3BCConfig",
    "TD3BCLearner",
    "TD3Config",
    "TD3Learner",
    "TQCConfig",
    "TQCLearner",
    "VDNConfig",
    "VDNLearner",
    "algorithm_class",
    "algorithm_names",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without coming here again
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
