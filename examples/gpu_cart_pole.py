"""Thousands of cart-poles on the GPU, with the networks that learn from them.

    python examples/gpu_cart_pole.py [STEPS]

Environments, networks, rollouts and updates are tensors of one device. Without a GPU the same
program runs on the CPU, in fewer environments.
"""

import sys
import time
from typing import Any

import torch

import sharpwave as sw


def main(steps: int | None = None) -> None:
    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    n_envs = 4096 if on_gpu else 64
    steps = steps or (8_000_000 if on_gpu else 250_000)
    settings: dict[str, Any] = {
        "seed": 0,
        "n_steps": 32,
        "batch_size": 8 * n_envs,
        "n_epochs": 8,
        "learning_rate": 3e-3 if on_gpu else 1e-3,
        "anneal_lr": True,
        "total_timesteps": steps,
        "ent_coef": 0.0,
    }
    env = sw.make_vec_env("CartPole-v1", n_envs, device=device)
    ppo = sw.PPO(env, backend="torch", **settings)
    began = time.perf_counter()
    ppo.train(callbacks=[sw.ProgressCallback()])
    seconds = time.perf_counter() - began
    print(f"{ppo.timesteps / seconds:,.0f} steps/s of training on {device}")
    print(f"after {ppo.timesteps} steps: {ppo.evaluate(10)}")
    ppo.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
