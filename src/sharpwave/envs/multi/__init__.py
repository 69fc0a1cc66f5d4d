"""Multi-agent environments: their interface, PettingZoo's behind it, and small ones to learn by."""

from sharpwave.envs.multi.joint import JointVectorEnv
from sharpwave.envs.multi.make import make_multi_env, multi_env_ids
from sharpwave.envs.multi.native import NativeMultiAgentEnv
from sharpwave.envs.multi.pettingzoo import PettingZooVectorEnv
from sharpwave.envs.multi.single import SingleAgentVectorEnv
from sharpwave.envs.multi.vector import GroupStep, MultiAgentVectorEnv, MultiStep

__all__ = [
    "GroupStep",
    "JointVectorEnv",
    "MultiAgentVectorEnv",
    "MultiStep",
    "NativeMultiAgentEnv",
    "PettingZooVectorEnv",
    "SingleAgentVectorEnv",
    "make_multi_env",
    "multi_env_ids",
]
