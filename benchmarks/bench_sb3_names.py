"""Programs of Stable-Baselines3 on this library, where only the import line is another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness import OURS, Ratio, Result, collect

PEER = "SB3"
ROUNDS = 3
STEPS = 20_480
ZOO: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "ent_coef": 0.0,
}


def rows() -> Iterator[Result]:
    yield row("PPO CartPole, defaults, an id", 1, {})
    yield row("PPO CartPole, 8 x 32, 20 epochs, make_vec_env", 8, ZOO)


def row(name: str, n_envs: int, options: dict[str, Any]) -> Result:
    return collect(
        name,
        "CPU-s/step",
        {side: partial(seconds_per_step, side, n_envs, options) for side in (OURS, PEER)},
        [Ratio(PEER, 20.0)],
        note=f"making the model and learning for {STEPS} steps",
        rounds=ROUNDS,
    )


def seconds_per_step(side: str, n_envs: int, options: dict[str, Any]) -> float:
    """Seconds of the processor for a step of a program."""
    if side == OURS:
        from sharpwave.compat.sb3 import PPO, make_vec_env
    else:
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

    def learn(steps: int) -> None:
        env = "CartPole-v1" if n_envs == 1 else make_vec_env("CartPole-v1", n_envs, seed=0)
        PPO("MlpPolicy", env, seed=0, device="cpu", **options).learn(steps)

    learn(256)  # warms up
    began = time.process_time()
    learn(STEPS)
    return (time.process_time() - began) / STEPS
