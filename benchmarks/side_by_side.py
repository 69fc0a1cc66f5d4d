"""Learn beside Stable-Baselines3 with the same hyperparameters: returns over steps and seconds.

    python benchmarks/side_by_side.py --results FILE.jsonl --jobs 15 --seconds 540

Every run is a process with one thread. After every `eval_every` steps it plays deterministic
episodes, whose time does not count, nor does that of imports. Seconds are those of the processor,
so other work on the machine changes little.

The results are a line for each run; a run that they hold is not made again, so that a later call
goes on. A run that the limit of `--seconds` cuts leaves the curve it has, and is made again only
by a call that has more time for it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import learning_results
from learning_results import Run
from learning_tasks import OURS, PEER, TASKS, Task

ROUNDS = (0, 3, 5, 10)
"""Every task has so many seeds before one of them gets more."""
GRACE = 30.0
"""Seconds from the limit until a run that did not stop is killed."""


@dataclass
class Curve:
    """Scores while a run goes on, and how long it had learned until then.

    Attributes:
        every: Steps between two scores.
        until: Time at which the run is cut.
    """

    every: int
    until: float
    score: Callable[[], float] = float
    points: list[tuple[int, float]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    began: float = 0.0
    reached: int = 0

    def start(self) -> None:
        """Begin to count seconds."""
        self.began = time.process_time()

    def at(self, step: int) -> bool:
        """Score where it is time to; whether the run goes on."""
        self.reached = step
        if step // self.every > len(self.points):
            paused = time.process_time()
            self.clock.append(paused - self.began)
            self.points.append((step, float(self.score())))
            self.began += time.process_time() - paused
        return time.time() < self.until


def learn_ours(task: Task, seed: int, curve: Curve) -> None:
    import sharpwave as sw

    class Watch(sw.Callback):
        def on_train_batch(self, *, step: int, **_: Any) -> bool:
            return curve.at(step)

    class WatchSteps(sw.Callback):
        def on_step(self, *, step: int, **_: Any) -> bool:
            return curve.at(step)

    curve.start()
    algorithm = getattr(sw, task.algorithm)(task.env, seed=seed, threads=1, **task.our_settings())
    curve.score = lambda: algorithm.evaluate(task.episodes).mean
    algorithm.train(task.steps, callbacks=WatchSteps() if task.learns_from_replay else Watch())


def learn_theirs(task: Task, seed: int, curve: Curve) -> None:
    import gymnasium as gym
    import numpy as np
    import sb3_contrib
    import stable_baselines3 as sb3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize

    options = task.options(PEER)
    if task.algorithm == "TD3":
        dim = gym.make(task.env).action_space.shape[0]
        options["action_noise"] = NormalActionNoise(np.zeros(dim), 0.1 * np.ones(dim))
    policy = {"net_arch": list(task.network), **options.pop("policy_kwargs", {})}
    curve.start()
    env = make_vec_env(task.env, task.n_envs, seed=seed)
    played = make_vec_env(task.env, 1, seed=seed + 1000)
    if task.normalized:
        env = VecNormalize(env, gamma=options.get("gamma", 0.99))
        played = VecNormalize(played, training=False, norm_reward=False)
        played.obs_rms = env.obs_rms
    library = sb3 if hasattr(sb3, task.algorithm) else sb3_contrib
    algorithm = getattr(library, task.algorithm)(
        "MlpPolicy", env, seed=seed, policy_kwargs=policy, device="cpu", **options
    )
    curve.score = lambda: evaluate_policy(algorithm, played, task.episodes)[0]
    algorithm.learn(task.steps, callback=lambda names, _: curve.at(names["self"].num_timesteps))


LEARN = {OURS: learn_ours, PEER: learn_theirs}


def run_one(name: str, contender: str, seed: int, seconds: float) -> Run:
    """Learn once, for so long at most; the curve and the speed."""
    import torch

    began = time.time()
    torch.set_num_threads(1)
    task = TASKS[name]
    curve = Curve(task.eval_every, began + seconds)
    LEARN[contender](task, seed, curve)
    spent = time.process_time() - curve.began
    return {
        "task": name,
        "contender": contender,
        "seed": seed,
        "steps": task.steps,
        "reached": min(curve.reached, task.steps),
        "curve": curve.points,
        "clock": curve.clock,
        "seconds": spent,
        "sps": curve.reached / spent,
        "wall": time.time() - began,
        "given": seconds if seconds < float("inf") else None,
        "machine": machine(),
    }


def machine() -> str:
    """The machine that the runs were made on, in words."""
    import torch

    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{date.today()}: {name}, {os.cpu_count()} cores, torch {torch.__version__}"


class Piece(NamedTuple):
    """One run of the grid."""

    task: str
    contender: str
    seed: int


def pieces(tasks: list[str], seeds: int) -> Iterator[Piece]:
    """All runs: of every task the first seeds, then the next ones."""
    for first, end in pairwise(ROUNDS):
        for name in tasks:
            for seed in range(first, min(end, seeds, TASKS[name].seeds)):
                yield from (Piece(name, contender, seed) for contender in (PEER, OURS))


class Grid:
    """The pieces that are left, of which it says the next one that is worth its time."""

    def __init__(self, left: list[Piece], results: Path | None, seconds: float) -> None:
        self.results = results
        self.limit = seconds
        self.until = time.time() + seconds
        self.runs = learning_results.load(results) if results else []
        if results:
            learning_results.save(results, self.runs)
        self.left = [piece for piece in left if not self._is_done(piece)]
        self._lock = threading.Lock()

    def work(self) -> None:
        """Make runs one after another, until none is left for the time there is."""
        while (piece := self._next()) is not None:
            found = run_apart(piece, self.until - time.time())
            if found is not None:
                with self._lock:
                    self.runs.append(found)
                    if self.results:
                        learning_results.append(self.results, found)

    def _next(self) -> Piece | None:
        with self._lock:
            for piece in self.left:
                if self._is_worth_it(piece, self.until - time.time()):
                    self.left.remove(piece)
                    return piece
            return None

    def _is_worth_it(self, piece: Piece, seconds: float) -> bool:
        """True where a run ends in the time left, or would be cut in any and has half of it."""
        expected = self._expected(piece)
        return expected < seconds or (expected > 0.9 * self.limit and seconds > self.limit / 2)

    def _expected(self, piece: Piece) -> float:
        """Seconds that a run takes, by the others of its kind."""
        kind = (piece.task, piece.contender)
        speeds = [
            run["wall"] / run["reached"]
            for run in self.runs
            if (run["task"], run["contender"]) == kind and run.get("wall") and run["reached"]
        ]
        return TASKS[piece.task].steps * statistics.median(speeds) if speeds else float("inf")

    def _is_done(self, piece: Piece) -> bool:
        task = TASKS[piece.task]
        for run in self.runs:
            if (run["task"], run["contender"], run["seed"]) == piece and run["steps"] == task.steps:
                cut = run["reached"] < task.steps
                return not cut or self.limit < 1.2 * run["given"]
        return False


def run_apart(piece: Piece, seconds: float) -> Run | None:
    """Make a run in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, piece), "--seconds", str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    limit = seconds + GRACE if seconds < float("inf") else None
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        print(f"{piece.task}, {piece.contender}, seed {piece.seed} did not stop", file=sys.stderr)
        return None
    if done.returncode:
        print(f"{piece} failed:\n{done.stderr[-2000:]}", file=sys.stderr, flush=True)
        return None
    found: Run = json.loads(done.stdout.splitlines()[-1])
    scores = ", ".join(f"{value:.0f}" for _, value in found["curve"][-5:])
    cut = "" if found["reached"] == found["steps"] else f" (cut after {found['reached']:,} steps)"
    print(
        f"{piece.task:18} {piece.contender:9} seed {piece.seed}: {found['sps']:7.0f} steps/s; "
        f"{scores}{cut}",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("TASK", "CONTENDER", "SEED"))
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS, metavar="TASK")
    parser.add_argument("--seeds", type=int, default=ROUNDS[-1], help="at most, of each task")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="until runs are cut")
    parser.add_argument("--results", type=Path, help="file of the runs there are")
    arguments = parser.parse_args()
    if arguments.one:
        name, contender, seed = arguments.one
        print(json.dumps(run_one(name, contender, int(seed), arguments.seconds)))
        return
    asked = list(pieces(arguments.tasks, arguments.seeds))
    grid = Grid(asked, arguments.results, arguments.seconds)
    print(f"{len(grid.left)} of {len(asked)} runs are left", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for worker in [pool.submit(grid.work) for _ in range(arguments.jobs)]:
            worker.result()


if __name__ == "__main__":
    main()
