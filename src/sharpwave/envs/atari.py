"""Atari games as agents are trained on them: small grey frames, four of them at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from sharpwave.core.optional import require
from sharpwave.envs.python import PythonVectorEnv

__all__ = ["RewardSigns", "is_atari", "make_atari"]


def is_atari(env_id: str) -> bool:
    """Return whether an id is that of an Atari game of ale-py."""
    return env_id.startswith("ALE/")


if TYPE_CHECKING:
    Wrapper = VectorWrapper[Any, Any, Any]
else:  # Gymnasium 1.1 to 1.3 have it without parameters
    Wrapper = VectorWrapper


class RewardSigns(Wrapper):
    """Gives the sign of every reward; the true ones are in `infos["raw_rewards"]`."""

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        infos = {**infos, "raw_rewards": rewards}
        return obs, np.sign(rewards).astype(np.float32), terminated, truncated, infos


def make_atari(
    env_id: str,
    n_envs: int,
    *,
    clip_rewards: bool = True,
    render_mode: str | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Games with the usual preparation.

    That is up to 30 idle steps, the fire button where it starts the game, every fourth frame (the
    brighter of two), 84 by 84 grey, and four of them stacked.

    ale-py steps all games in native threads; where pictures are wanted (`render_mode`), Gymnasium's
    wrappers do the same one game at a time.

    Args:
        env_id: Such as "ALE/Pong-v5".
        n_envs: Number of games.
        clip_rewards: Give the signs of rewards. Episode statistics keep the true ones.
        render_mode: "human" or "rgb_array".
        **options: For ale-py's vector environment, such as `episodic_life=True`.
    """
    gym.register_envs(require("ale_py", extra="atari"))
    env: VectorEnv[Any, Any, Any]
    if render_mode is not None:
        env = PythonVectorEnv([partial(_rendered, env_id, render_mode)] * n_envs)
    else:
        env = gym.make_vec(
            env_id,
            n_envs,
            vectorization_mode="vector_entry_point",
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
            **options,
        )
    return RewardSigns(env) if clip_rewards else env


def _rendered(env_id: str, render_mode: str) -> gym.Env[Any, Any]:
    game = gym.make(env_id, render_mode=render_mode, frameskip=1, disable_env_checker=True)
    prepared = gym.wrappers.AtariPreprocessing(game)
    return gym.wrappers.FrameStackObservation(prepared, 4)
