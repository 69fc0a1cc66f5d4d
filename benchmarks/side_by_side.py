"""Learn beside Stable-Baselines3 with the same hyperparameters: returns over steps and seconds.

    python benchmarks/side_by_side.py --json benchmarks/results_learning.json --jobs 2

Every run is a process with one thread. After every `eval_every` steps it plays deterministic
episodes, whose time does not count, nor does that of imports. Seconds are those of the processor,
so other work on the machine changes little. Runs of tasks that are not named stay in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

OURS, PEER = "sharpwave", "SB3"
EPISODES = 10


@dataclass(frozen=True)
class Task:
    """The task of the runs, and the settings of each.

    Attributes:
        shared: Options that have the same name and meaning on both sides.
        ours: Our names of the others.
        theirs: SB3's names of the same.
        network: Widths of the hidden layers.
    """

    algorithm: str
    env: str
    steps: int
    eval_every: int
    network: tuple[int, ...] = (256, 256)
    shared: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)


def dqn(env: str, steps: int, target: int, fraction: float, final: float, **shared: Any) -> Task:
    return Task(
        "DQN",
        env,
        steps,
        steps // 10,
        shared={"exploration_fraction": fraction, "exploration_final_eps": final, **shared},
        ours={"double_dqn": False, "target_update_freq": target, "max_grad_norm": 10},
        theirs={"target_update_interval": target},
    )


def td3(env: str, steps: int, network: tuple[int, ...], **shared: Any) -> Task:
    return Task("TD3", env, steps, steps // 10, network, shared, ours={"exploration_noise": 0.1})


TASKS = {
    "PPO CartPole": Task(
        "PPO",
        "CartPole-v1",
        100_000,
        5_000,
        (64, 64),
        shared={
            "n_steps": 32,
            "batch_size": 256,
            "n_epochs": 20,
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "ent_coef": 0.0,
        },
        # Our loss of values has a factor of one half.
        ours={
            "n_envs": 8,
            "vf_coef": 1.0,
            "learning_rate": "linear(1e-3)",
            "clip_eps": "linear(0.2)",
            "anneal_lr": False,
        },
        theirs={
            "vf_coef": 0.5,
            "learning_rate": lambda remaining: 1e-3 * remaining,
            "clip_range": lambda remaining: 0.2 * remaining,
        },
    ),
    "DQN CartPole": dqn(
        "CartPole-v1",
        50_000,
        target=10,
        fraction=0.16,
        final=0.04,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        train_freq=256,
        gradient_steps=128,
    ),
    "DQN LunarLander": dqn(
        "LunarLander-v3",
        100_000,
        target=250,
        fraction=0.12,
        final=0.1,
        learning_rate=6.3e-4,
        batch_size=128,
        buffer_size=50_000,
        learning_starts=200,
        train_freq=4,
        gradient_steps=-1,
    ),
    "SAC Pendulum": Task("SAC", "Pendulum-v1", 10_000, 1000, shared={"learning_rate": 1e-3}),
    "SAC HalfCheetah": Task(
        "SAC", "HalfCheetah-v5", 25_000, 2500, shared={"learning_starts": 2500}
    ),
    "TD3 Pendulum": td3(
        "Pendulum-v1",
        10_000,
        (400, 300),
        learning_rate=1e-3,
        gamma=0.98,
        buffer_size=200_000,
        learning_starts=1000,
    ),
    "TD3 Hopper": td3("Hopper-v5", 50_000, (256, 256), learning_rate=3e-4, learning_starts=5000),
}


@dataclass
class Curve:
    """Scores while a run goes on, and how long it had learned until then."""

    every: int
    score: Callable[[], float]
    points: list[tuple[int, float]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    began: float = 0.0

    def start(self) -> None:
        """Begin to count seconds."""
        self.began = time.process_time()

    def at(self, step: int) -> bool:
        """Score where it is time to; True, so that the run goes on."""
        if step // self.every > len(self.points):
            paused = time.process_time()
            self.clock.append(paused - self.began)
            self.points.append((step, float(self.score())))
            self.began += time.process_time() - paused
        return True


def learn_ours(task: Task, seed: int, curve: Curve) -> None:
    import sharpwave as sw

    class Watch(sw.Callback):
        def on_train_batch(self, *, step: int, **_: Any) -> bool:
            return curve.at(step)

    class WatchSteps(sw.Callback):
        def on_step(self, *, step: int, **_: Any) -> bool:
            return curve.at(step)

    learns_from_replay = task.algorithm != "PPO"
    options = {"learning_starts": 100} if learns_from_replay else {}
    options |= {"threads": 1, **task.shared, **task.ours}
    curve.start()
    algorithm = getattr(sw, task.algorithm)(task.env, seed=seed, hidden=task.network, **options)
    curve.score = lambda: algorithm.evaluate(EPISODES).mean
    algorithm.train(task.steps, callbacks=WatchSteps() if learns_from_replay else Watch())


def learn_theirs(task: Task, seed: int, curve: Curve) -> None:
    import gymnasium as gym
    import numpy as np
    import stable_baselines3 as sb3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise

    options = {"learning_starts": 100} if task.algorithm != "PPO" else {}
    options |= {**task.shared, **task.theirs}
    if task.algorithm == "TD3":
        dim = gym.make(task.env).action_space.shape[0]
        options["action_noise"] = NormalActionNoise(np.zeros(dim), 0.1 * np.ones(dim))
    curve.start()
    n_envs = task.ours.get("n_envs", 1)
    algorithm = getattr(sb3, task.algorithm)(
        "MlpPolicy",
        make_vec_env(task.env, n_envs, seed=seed),
        seed=seed,
        policy_kwargs={"net_arch": list(task.network)},
        device="cpu",
        **options,
    )
    played = Monitor(gym.make(task.env))
    played.reset(seed=seed + 1000)
    curve.score = lambda: evaluate_policy(algorithm, played, EPISODES)[0]
    algorithm.learn(task.steps, callback=lambda names, _: curve.at(names["self"].num_timesteps))


LEARN = {OURS: learn_ours, PEER: learn_theirs}


def run_one(name: str, contender: str, seed: int) -> dict[str, Any]:
    """Learn once; the curve and the speed."""
    import torch

    torch.set_num_threads(1)
    task = TASKS[name]
    curve = Curve(task.eval_every, float)
    LEARN[contender](task, seed, curve)
    seconds = time.process_time() - curve.began
    return {
        "task": name,
        "contender": contender,
        "seed": seed,
        "steps": task.steps,
        "curve": curve.points,
        "clock": curve.clock,
        "seconds": seconds,
        "sps": task.steps / seconds,
        "machine": machine(),
    }


def run_apart(name: str, seed: int, contender: str) -> dict[str, Any] | None:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", name, contender, str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}, {contender}, seed {seed} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    last = ", ".join(f"{value:.0f}" for _, value in found["curve"])
    print(f"{name:16} {contender:9} seed {seed}: {found['sps']:7.0f} steps/s; {last}", flush=True)
    return found


def machine() -> str:
    """The machine that the runs were made on, in words."""
    import torch

    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{date.today()}: {name}, {os.cpu_count()} cores, torch {torch.__version__}"


def runs_of(path: Path | None) -> list[dict[str, Any]]:
    """The runs that a file holds already."""
    if path is None or not path.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    return runs


def place(run: dict[str, Any]) -> tuple[int, str, int]:
    """Order of a run in the file."""
    return list(TASKS).index(run["task"]), run["contender"], run["seed"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("TASK", "CONTENDER", "SEED"))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.one:
        name, contender, seed = arguments.one
        print(json.dumps(run_one(name, contender, int(seed))))
        return
    jobs = product(arguments.tasks, range(arguments.seeds), (OURS, PEER))
    runs = [run for run in runs_of(arguments.json) if run["task"] not in arguments.tasks]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in as_completed(pool.submit(run_apart, *job) for job in jobs):
            runs += [run for run in (found.result(),) if run is not None]
            if arguments.json:
                arguments.json.write_text(json.dumps({"runs": sorted(runs, key=place)}) + "\n")


if __name__ == "__main__":
    main()
