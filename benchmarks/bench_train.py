"""Training on the CPU: whole runs, and what they are made of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import OURS, AtMost, Measurement, Operation, Ratio, Result, Row, collect
from trainers import (
    EPISODES,
    HYBRID_PPO,
    TRAINERS,
    ZOO_A2C,
    ZOO_PPO,
    Settings,
    mean_return,
)

ROUNDS = 3
RUNS = {
    "PPO CartPole, 8 x 32, 20 epochs": ZOO_PPO,
    "HybridPPO CartPole, 16 x 128, 4 epochs": HYBRID_PPO,
    "A2C CartPole, 8 x 5": ZOO_A2C,
}
HERE = Path(__file__).parent
LARGE_PPO = replace(HYBRID_PPO, algorithm="ppo")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
FIRST_UPDATE = """
from trainers import TRAINERS, ZOO_PPO
TRAINERS[{name!r}](ZOO_PPO, 0, **{options!r}).train(ZOO_PPO.n_envs * ZOO_PPO.n_steps)
"""
TARGETS = {
    ZOO_PPO: [Ratio("SB3", 25.0)],
    HYBRID_PPO: [Ratio("SB3", 25.0)],
    ZOO_A2C: [Ratio("SB3", 15.0)],
}
"""Of whole runs."""


def rows() -> Iterator[Row | Result]:
    yield minibatch("in native code", [Ratio("SB3", 12.0)])
    yield minibatch("by autograd", [Ratio("SB3", 1.5)], backend="torch")
    yield collection()
    yield native_collection()
    yield process_start("the first 20 gradient steps", 0.7)
    yield process_start("the first 20 gradient steps, with torch", 2.5, backend="torch")
    for name, settings in RUNS.items():
        yield from whole_runs(name, settings)


def minibatch(way: str, targets: list[Ratio], *, backend: str = "native") -> Row:
    return Row(
        f"PPO minibatch update, 256 rows, {way}",
        {OURS: partial(our_update, backend), "SB3": sb3_update},
        targets,
        ops_per_call=ZOO_PPO.n_epochs,
        patience=5,
        note="a whole update of 20 minibatches, over 20; schedules, statistics and logs are in it",
    )


def our_update(backend: str) -> Operation:
    algorithm = TRAINERS[OURS](ZOO_PPO, 0, backend=backend).algorithm
    batch = algorithm.loop.collect()
    algorithm.loop.follow(1.0)
    return lambda: {name: float(value) for name, value in algorithm.update(batch).items()}


def sb3_update() -> Operation:
    algorithm, collect = sb3_collector(ZOO_PPO)
    collect()
    return algorithm.train


def collection() -> Row:
    return Row(
        "rollout in Python environments, 16 envs x 128 steps, per step",
        {OURS: our_rollout, "rlox": rlox_rollout, "SB3": sb3_rollout},
        ops_per_call=HYBRID_PPO.n_envs * HYBRID_PPO.n_steps,
        patience=3,
        note="CartPole with a 2 x 64 tanh policy, advantages included;"
        " rlox steps its own environments in Rust, the others Gymnasium's",
    )


def native_collection() -> Result:
    """Seconds per step of rollouts one after the other: what was collected ahead does not count."""
    import rlox

    from sharpwave.collect import NativeCollector

    size = HYBRID_PPO.n_envs * HYBRID_PPO.n_steps
    shape = {"env_id": "CartPole-v1", "n_envs": HYBRID_PPO.n_envs, "n_steps": HYBRID_PPO.n_steps}
    ours = NativeCollector(**shape, capacity=0)
    theirs = rlox.CandleCollector(**shape, obs_dim=4, n_actions=2, hidden=64, capacity=1)

    def seconds_per_step(rollout: Operation, n: int, ahead: int = 0) -> float:
        for _ in range(1 + ahead):
            rollout()
        began = time.perf_counter()
        for _ in range(n):
            rollout()
        return (time.perf_counter() - began) / (n * size)

    return collect(
        "rollout in native threads, 16 envs x 128 steps",
        "s/step",
        {
            OURS: partial(seconds_per_step, ours.recv, 10),
            "rlox": partial(seconds_per_step, theirs.recv, 4, 3),
            "SB3": partial(seconds_per_step, sb3_rollout(), 1),
        },
        [Ratio("rlox", 30.0), Ratio("SB3", 120.0)],
        note="CartPole with a 2 x 64 tanh policy, advantages included; NativeCollector, rlox's"
        " CandleCollector (both step environments of their own), and SB3 with Gymnasium's",
        rounds=15,
    )


def our_rollout() -> Operation:
    collector = TRAINERS[OURS](LARGE_PPO, 0, env_mode="sync").algorithm.collector
    return partial(collector.collect, HYBRID_PPO.gamma, HYBRID_PPO.gae_lambda)


def rlox_rollout() -> Operation:
    algorithm = TRAINERS["rlox"](LARGE_PPO, 0).algorithm
    return partial(algorithm.collector.collect, algorithm.policy, HYBRID_PPO.n_steps)


def sb3_rollout() -> Operation:
    return sb3_collector(HYBRID_PPO)[1]


def sb3_collector(settings: Settings) -> tuple[Any, Operation]:
    """An algorithm of SB3 and its collection, set up as its `learn` does."""
    algorithm = TRAINERS["SB3"](settings, 0).algorithm
    _, callback = algorithm._setup_learn(settings.steps, None)
    callback.on_training_start({}, {})
    buffer = algorithm.rollout_buffer
    return algorithm, partial(
        algorithm.collect_rollouts, algorithm.env, callback, buffer, settings.n_steps
    )


def process_start(what: str, limit: float, **options: Any) -> Result:
    def seconds(name: str) -> float:
        began = time.perf_counter()
        script = FIRST_UPDATE.format(name=name, options=options if name == OURS else {})
        subprocess.run([sys.executable, "-c", script], cwd=HERE, env=ENVIRONMENT, check=True)
        return time.perf_counter() - began

    return collect(
        f"process start to {what}",
        "s",
        {name: partial(seconds, name) for name in TRAINERS},
        [AtMost(limit, "s")],
        note="Python starts, imports the library, makes PPO, collects and learns from 8 x 32 steps",
        rounds=ROUNDS,
    )


def whole_runs(name: str, settings: Settings) -> Iterator[Result]:
    """Seconds per step of making and training an algorithm, then what its policy is worth."""
    returns: dict[str, list[float]] = defaultdict(list)
    shares = Counter[str]()

    def seconds_per_step(contender: str) -> float:
        seed = len(returns[contender])
        make = TRAINERS[contender]
        make(settings, seed).train(settings.n_envs * settings.n_steps)  # warms up
        began = time.perf_counter()
        trainer = make(settings, seed)
        trainer.train(settings.steps)
        seconds = time.perf_counter() - began
        returns[contender].append(mean_return(trainer.predict, seed))
        if contender == OURS:
            shares.update({"all": seconds, **trainer.algorithm.timings})
        return seconds / settings.steps

    runs = collect(
        name,
        "s/step",
        {contender: partial(seconds_per_step, contender) for contender in TRAINERS},
        TARGETS.get(settings, ()),
        rounds=ROUNDS,
    )
    runs.note = f"{settings.steps} steps, native backend; sharpwave's time: {percentages(shares)}"
    yield runs
    yield Result(
        f"{name}: return",
        {contender: Measurement.of(values) for contender, values in returns.items()},
        unit="return",
        note=f"{EPISODES} deterministic episodes, median of {ROUNDS} seeds: {listed(returns)}",
    )


def percentages(seconds: Counter[str]) -> str:
    whole = seconds.pop("all")
    seconds["rest"] = whole - seconds.total()
    return ", ".join(f"{part} {value / whole:.0%}" for part, value in seconds.most_common())


def listed(returns: dict[str, list[float]]) -> str:
    return ", ".join(
        f"{contender} {' '.join(f'{value:.0f}' for value in values)}"
        for contender, values in returns.items()
    )
