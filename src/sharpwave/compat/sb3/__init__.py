"""Algorithms of this library under Stable-Baselines3's names: change the import, keep the program.

    from sharpwave.compat.sb3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", verbose=1).learn(50_000)
    action, _ = model.predict(obs, deterministic=True)

Callbacks, VecEnvs, Monitor, `evaluate_policy` and loggers are SB3's own, where it is installed. Its
files are read by `from_sb3`, without running a pickle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sharpwave.compat.sb3.off_policy import DDPG, DQN, QRDQN, SAC, TD3, TQC, CrossQ
from sharpwave.compat.sb3.on_policy import A2C, PPO, MaskablePPO, RecurrentPPO
from sharpwave.compat.sb3.refusals import PAGE
from sharpwave.compat.sb3.vec_env import NativeVecEnv, make_vec_env

if TYPE_CHECKING:
    from sharpwave.compat.sb3.their_files import from_sb3 as from_sb3

__all__ = [
    "A2C",
    "DDPG",
    "DQN",
    "PPO",
    "QRDQN",
    "SAC",
    "TD3",
    "TQC",
    "CrossQ",
    "MaskablePPO",
    "NativeVecEnv",
    "RecurrentPPO",
    "from_sb3",
    "make_vec_env",
]

ABSENT = {
    "HerReplayBuffer": "give SB3's own as replay_buffer_class, or her_goals to an agent",
    "TRPO": "the algorithm is not part of sharpwave",
    "ARS": "the algorithm is not part of sharpwave",
}
"""Names of SB3 that are not here, and what there is in their place."""


def __getattr__(name: str) -> Any:
    if name == "from_sb3":  # which needs torch
        from sharpwave.compat.sb3.their_files import from_sb3

        return from_sb3
    if name in ABSENT:
        raise AttributeError(f"{name} of SB3 is not here: {ABSENT[name]}; see {PAGE}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
