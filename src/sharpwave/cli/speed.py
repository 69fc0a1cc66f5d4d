"""`sharpwave bench`."""

from __future__ import annotations

import statistics
import time
from typing import Any

from sharpwave.algorithms.registry import algorithm_class, source_names
from sharpwave.cli.environment import (
    add_env_options,
    env_of,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import input_errors, say
from sharpwave.config.presets import find_preset


def run(arguments: list[str]) -> int:
    """Measure, and return the exit status."""
    parsed = _parser().parse(arguments)

    from sharpwave.cli.running import backend_of

    import_modules(parsed.imports)
    with input_errors():
        algorithm: Any = algorithm_class(parsed.algorithm)
        takes = source_names(algorithm)
        if "env_id" not in takes:
            reason = "learns from a dataset" if "dataset" in takes else "acts in no environment"
            raise ValueError(f"{algorithm.name} {reason}: there is nothing to step")
    require_env(parsed.env, algorithm)
    settings = find_preset(algorithm.name, parsed.env) or {}
    with input_errors():
        plan = Plan(algorithm=algorithm.name, env_id=parsed.env, wrappers=tuple(parsed.wrappers))
        env_kwargs = parse_env_kwargs(parsed.env_kwargs)
        algo = algorithm(env_of(plan), env_kwargs=env_kwargs, **settings)
    try:
        rates, shares = measure(algo, parsed.steps, parsed.repeats)
    finally:
        algo.close()
    kind = "preset" if settings else "default settings"
    say(
        f"{algo.name} on {algo.subject} ({kind}, {backend_of(algo)}): "
        f"{statistics.median(rates):,.0f} steps/s, median of {len(rates)} "
        f"({min(rates):,.0f} to {max(rates):,.0f}), {parsed.steps:,} steps each"
    )
    say("time in " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()))
    return 0


def measure(algo: Any, steps: int, repeats: int) -> tuple[list[float], dict[str, float]]:
    """Training steps per second of each repeat, and the share of each section of them all.

    What is slow only once (imports, first calls) happens before, in one update.
    """
    algo.train(1)
    before, rates = dict(algo.timings), []
    for _ in range(repeats):
        first, began = algo.timesteps, time.perf_counter()
        algo.train(steps)
        rates.append((algo.timesteps - first) / (time.perf_counter() - began))
    spent = {name: seconds - before.get(name, 0.0) for name, seconds in algo.timings.items()}
    whole = sum(spent.values()) or 1.0
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return rates, {name: seconds / whole for name, seconds in ordered}


def _parser() -> Parser:
    parser = Parser("bench", "Measure the training speed on this machine.")
    parser.add_argument(
        "algorithm", nargs="?", default="ppo", metavar="ALGORITHM", help="algorithm (default: ppo)"
    )
    parser.add_argument(
        "env",
        nargs="?",
        default="CartPole-v1",
        metavar="ENV",
        help="id of the environment (default: CartPole-v1)",
    )
    parser.add_argument(
        "--steps",
        type=count(1),
        default=20_000,
        metavar="N",
        help="steps of one repeat (default: 20000)",
    )
    parser.add_argument(
        "--repeats", type=count(1), default=3, metavar="N", help="repeats (default: 3)"
    )
    add_env_options(parser)
    return parser
