"""PPO, HybridPPO and A2C of every contender, made as its documentation shows.

SB3 has no HybridPPO; its PPO stands beside the others'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ENV = "CartPole-v1"
EPISODES = 20


@dataclass(frozen=True)
class Settings:
    """Settings of a run, whoever runs it. Networks are 2 x 64 tanh, for actor and critic apart."""

    algorithm: str
    steps: int
    n_envs: int
    n_steps: int
    learning_rate: float
    gamma: float
    gae_lambda: float
    ent_coef: float = 0.0
    vf_coef: float = 0.5
    """Weight of the mean squared error of the values, without a half."""
    n_epochs: int = 1
    batch_size: int = 256
    clip: float = 0.2
    annealed: bool = False
    """The learning rate falls linearly to 0."""
    clip_annealed: bool = False
    """And the clip range; rlox has only a constant one."""

    def common(self) -> dict[str, Any]:
        """The options that have the same name everywhere."""
        names = ("gamma", "gae_lambda", "ent_coef", "n_steps")
        return {name: getattr(self, name) for name in names}

    def of_ppo(self) -> dict[str, Any]:
        """The options of PPO beyond those, under the same name everywhere."""
        if self.algorithm == "a2c":
            return {}
        return {"n_epochs": self.n_epochs, "batch_size": self.batch_size}


ZOO_PPO = Settings(
    "ppo",
    steps=40_960,
    n_envs=8,
    n_steps=32,
    n_epochs=20,
    learning_rate=1e-3,
    gamma=0.98,
    gae_lambda=0.8,
    annealed=True,
    clip_annealed=True,
)
HYBRID_PPO = Settings(
    "hybrid_ppo",
    steps=81_920,
    n_envs=16,
    n_steps=128,
    n_epochs=4,
    learning_rate=2.5e-4,
    gamma=0.99,
    gae_lambda=0.95,
    ent_coef=0.01,
    annealed=True,
)
ZOO_A2C = Settings(
    "a2c",
    steps=40_000,
    n_envs=8,
    n_steps=5,
    learning_rate=7e-4,
    gamma=0.99,
    gae_lambda=1.0,
)


@dataclass(frozen=True)
class Trainer:
    """An algorithm that is made and ready to train."""

    algorithm: Any
    train: Callable[[int], object]
    predict: Callable[[np.ndarray], np.ndarray]
    """The most likely actions for a batch of observations."""


def ours(settings: Settings, seed: int, **options: Any) -> Trainer:
    import sharpwave as sw
    from sharpwave.config.schedules import Linear

    rate: Any = settings.learning_rate
    if settings.algorithm != "a2c":
        options["clip_eps"] = Linear(settings.clip) if settings.clip_annealed else settings.clip
    classes = {"ppo": sw.PPO, "hybrid_ppo": sw.HybridPPO, "a2c": sw.A2C}
    algorithm = classes[settings.algorithm](
        ENV,
        n_envs=settings.n_envs,
        seed=seed,
        learning_rate=Linear(rate) if settings.annealed else rate,
        anneal_lr=False,
        vf_coef=2 * settings.vf_coef,
        **settings.common(),
        **settings.of_ppo(),
        **options,
    )
    return Trainer(algorithm, algorithm.train, algorithm.predict)


def sb3(settings: Settings, seed: int) -> Trainer:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    rate, clip = settings.learning_rate, settings.clip
    options: dict[str, Any] = settings.of_ppo()
    if settings.algorithm != "a2c":
        options["clip_range"] = (lambda left: left * clip) if settings.clip_annealed else clip
    is_a2c = settings.algorithm == "a2c"
    algorithm = (stable_baselines3.A2C if is_a2c else stable_baselines3.PPO)(
        "MlpPolicy",
        make_vec_env(ENV, settings.n_envs, seed=seed),
        learning_rate=(lambda left: left * rate) if settings.annealed else rate,
        vf_coef=settings.vf_coef,
        seed=seed,
        device="cpu",
        **settings.common(),
        **options,
    )
    return Trainer(
        algorithm, algorithm.learn, lambda obs: algorithm.predict(obs, deterministic=True)[0]
    )


def rlox(settings: Settings, seed: int) -> Trainer:
    import torch
    from rlox.algorithms.a2c import A2C
    from rlox.algorithms.hybrid_ppo import HybridPPO
    from rlox.algorithms.ppo import PPO

    torch.manual_seed(seed)  # its policies and samples come from torch's global generator
    options: dict[str, Any] = settings.of_ppo()
    if settings.algorithm != "a2c":
        options |= {
            "clip_eps": settings.clip,
            "clip_vloss": False,
            "anneal_lr": settings.annealed,
        }
    classes = {"ppo": PPO, "hybrid_ppo": HybridPPO, "a2c": A2C}
    algorithm = classes[settings.algorithm](
        ENV,
        n_envs=settings.n_envs,
        seed=seed,
        learning_rate=settings.learning_rate,
        vf_coef=2 * settings.vf_coef,
        **settings.common(),
        **options,
    )
    if settings.algorithm == "hybrid_ppo":  # predicts for one observation
        return Trainer(
            algorithm, algorithm.train, lambda obs: np.array([*map(algorithm.predict, obs)])
        )
    return Trainer(algorithm, algorithm.train, lambda obs: np.asarray(algorithm.predict(obs)))


TRAINERS: dict[str, Callable[..., Trainer]] = {
    "sharpwave": ours,
    "rlox": rlox,
    "SB3": sb3,
}


def mean_return(predict: Callable[[np.ndarray], np.ndarray], seed: int) -> float:
    """Mean return of the first episode of each of 20 environments of Gymnasium."""
    import gymnasium as gym

    env = gym.make_vec(ENV, num_envs=EPISODES)
    obs, _ = env.reset(seed=seed)
    returns, alive = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while alive.any():
        obs, rewards, terminated, truncated, _ = env.step(np.asarray(predict(obs)))
        returns += alive * rewards
        alive &= ~(terminated | truncated)
    env.close()
    return float(returns.mean())
