"""Algorithms, one file each."""

from sharpwave.algorithms.a2c import A2C, A2CConfig
from sharpwave.algorithms.bc import BC, BCConfig
from sharpwave.algorithms.c51 import C51, C51Config
from sharpwave.algorithms.cql import CQL, CQLConfig
from sharpwave.algorithms.crossq import CrossQ, CrossQConfig
from sharpwave.algorithms.ddpg import DDPG, DDPGConfig
from sharpwave.algorithms.discrete_sac import DiscreteSAC, DiscreteSACConfig
from sharpwave.algorithms.dqn import DQN, DQNConfig
from sharpwave.algorithms.hybrid_ppo import HybridPPO, HybridPPOConfig
from sharpwave.algorithms.iql import IQL, IQLConfig
from sharpwave.algorithms.ppo import PPO, PPOConfig
from sharpwave.algorithms.qr_dqn import QRDQN, QRDQNConfig
from sharpwave.algorithms.rebrac import ReBRAC, ReBRACConfig
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.algorithms.sac import SAC, SACConfig
from sharpwave.algorithms.td3 import TD3, TD3Config
from sharpwave.algorithms.td3_bc import TD3BC, TD3BCConfig
from sharpwave.algorithms.tqc import TQC, TQCConfig

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
    "HybridPPO",
    "HybridPPOConfig",
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
