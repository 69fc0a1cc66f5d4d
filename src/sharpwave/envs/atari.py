"""Atari games as agents are trained on them: stacks of four small grayscale frames."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from sharpwave.core.optional import require
from sharpwave.envs.python import PythonVectorEnv

__all__ = ["RewardSigns", "WithoutStack", "is_atari", "make_atari"]

OF_IMAGES = ("img_height", "img_width", "grayscale", "stack_num")
"""Arguments of a game that decide on the shape of its images."""


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


class WithoutStack(Wrapper):
    """Color images [height, width, 3] of games whose stack holds a single one."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        stacked = env.single_observation_space
        assert isinstance(stacked, Box)
        self.single_observation_space = Box(stacked.low[0], stacked.high[0], dtype=np.uint8)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """Begin episodes in all environments."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return obs[:, 0], infos

    def step(self, actions: Any) -> Any:
        """Step all environments."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if infos.get("final_obs") is not None:
            infos = {**infos, "final_obs": infos["final_obs"][:, 0]}
        return obs[:, 0], rewards, terminated, truncated, infos


def make_atari(
    env_id: str,
    n_envs: int,
    *,
    clip_rewards: bool = True,
    render_mode: str | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Atari games with the usual preprocessing.

    That is up to 30 no-op steps after a reset, FIRE where it starts the game, a frame skip of 4
    (the maximum of the last two frames), grayscale images of 84 x 84, and a stack of 4 of them.
    With `stack_num=1` and `grayscale=False` they are color images [height, width, 3].

    ale-py steps all games in native threads; where pictures are wanted (`render_mode`), Gymnasium's
    wrappers do the same one game at a time.

    Args:
        env_id: Such as "ALE/Pong-v5".
        n_envs: Number of games.
        clip_rewards: Give the signs of rewards. Episode statistics keep the true ones.
        render_mode: "human" or "rgb_array".
        **options: For ale-py's vector environment, such as `episodic_life=True`. Of pictures those
            of images alone: `img_height`, `img_width`, `grayscale` and `stack_num`.
    """
    gym.register_envs(require("ale_py", extra="atari"))
    env: VectorEnv[Any, Any, Any]
    if render_mode is not None:
        given = {name: options[name] for name in OF_IMAGES if name in options}
        env = PythonVectorEnv([partial(_rendered, env_id, render_mode, **given)] * n_envs)
    else:
        env = gym.make_vec(
            env_id,
            n_envs,
            vectorization_mode="vector_entry_point",
            reward_clipping=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
            **options,
        )
        if options.get("stack_num") == 1 and options.get("grayscale") is False:
            env = WithoutStack(env)
    return RewardSigns(env) if clip_rewards else env


def _rendered(
    env_id: str,
    render_mode: str,
    img_height: int = 84,
    img_width: int = 84,
    *,
    grayscale: bool = True,
    stack_num: int = 4,
) -> gym.Env[Any, Any]:
    game = gym.make(env_id, render_mode=render_mode, frameskip=1, disable_env_checker=True)
    size: Any = img_height if img_height == img_width else (img_width, img_height)
    prepared = gym.wrappers.AtariPreprocessing(game, screen_size=size, grayscale_obs=grayscale)
    if stack_num == 1 and not grayscale:
        return prepared
    return gym.wrappers.FrameStackObservation(prepared, stack_num)
