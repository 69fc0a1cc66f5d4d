"""A little of everything that leans on Gymnasium, NumPy and torch, for versions not pinned."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import sharpwave as sw
from sharpwave import envs
from sharpwave.envs.atari import RewardSigns

SPACES: list[gym.Space[Any]] = [
    spaces.Discrete(3, start=1),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Box(-1, np.inf, (2, 3), np.float64),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Box(0, 255, (4,), np.uint8),))),
]


def environments() -> None:
    """Every kind of vector environment, in the autoreset mode that it has."""
    for mode in ("native", "sync", "async"):
        env = sw.make_vec_env("CartPole-v1", 2, seed=0, mode=mode)
        stepper = envs.Stepper(env)
        stepper.reset(seed=0)
        for _ in range(60):
            stepper.step(env.action_space.sample())
        env.close()
    wrapped = RewardSigns(envs.VecNormalize(gym.make_vec("Pendulum-v1", 2)))
    wrapped.reset(seed=0)
    assert set(wrapped.step(wrapped.action_space.sample())[1].tolist()) <= {-1.0, 0.0, 1.0}
    wrapped.close()
    for space in SPACES:
        assert envs.space_from_json(envs.space_to_json(space)) == space


def training(folder: Path, *, torch: bool) -> None:
    """Learning in native code and in torch, from rollouts and from replay; a run that resumes."""
    small: dict[str, Any] = {"n_envs": 2, "n_steps": 32, "batch_size": 32, "hidden": (8,)}
    options: Any = ({}, {"backend": "torch"}, {"env_mode": "sync"}, {"normalize_obs": True})
    for number, more in enumerate(options):
        if more.get("backend") == "torch" and not torch:
            continue
        agent = sw.PPO("CartPole-v1", **small, **more)
        agent.train(64, run_dir=folder / f"ppo{number}")
        assert sw.PPO.from_checkpoint(folder / f"ppo{number}/checkpoints/latest.safetensors")
        agent.train(128, run_dir=folder / f"ppo{number}", resume=True)
        assert agent.timesteps == 128
        agent.evaluate(2)
        agent.close()
    replay: dict[str, Any] = {
        "learning_starts": 8,
        "batch_size": 8,
        "buffer_size": 100,
        "hidden": (8,),
    }
    sw.DQN("CartPole-v1", prioritized=True, n_step=3, **replay).train(40)
    sw.SAC("Pendulum-v1", **replay).train(40)
    backend = "torch" if torch else "native"
    sw.TD3("Pendulum-v1", backend=backend, buffer=folder / "replay", **replay).train(40)


def experience(folder: Path, *, torch: bool) -> None:
    """Buffers of what vector environments give, and episodes on disk."""
    env = gym.make_vec("CartPole-v1", num_envs=2)
    buffer = sw.ReplayBuffer.for_env(env, capacity=100)
    writer = sw.VectorWriter(buffer, env)
    obs, _ = env.reset(seed=0)
    for _ in range(40):
        actions = env.action_space.sample()
        after = env.step(actions)
        writer.push(obs, actions, *after[1:4], after[0], after[4])
        obs = after[0]
    assert len(buffer.sample(16)["rewards"]) == 16
    env.close()
    data = sw.datasets.make_dataset("Pendulum-v1", "mixed", folder / "data", n_steps=400)
    learner = sw.BC if torch else sw.TD3BC
    learner(data, env="Pendulum-v1", hidden=(8, 8)).train(10)


def main() -> None:
    """Run it all, in a folder that goes away."""
    torch = "--without-torch" not in sys.argv
    with tempfile.TemporaryDirectory() as folder:
        environments()
        training(Path(folder), torch=torch)
        experience(Path(folder), torch=torch)
    assert torch or "torch" not in sys.modules
    versions = (
        f"gymnasium {gym.__version__}, numpy {np.__version__}, Python {sys.version.split()[0]}"
    )
    sys.stdout.write(f"works with {versions}\n")


if __name__ == "__main__":
    main()
