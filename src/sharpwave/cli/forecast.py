"""`sharpwave plan`."""

from __future__ import annotations

import time
from typing import Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.cli.environment import (
    add_env_options,
    env_of,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.plan import Plan
from sharpwave.cli.terminal import input_errors, say
from sharpwave.config.presets import find_preset
from sharpwave.distributed.forecast import Forecast

MOST_MEASURED = 8
"""Unrolls of the largest batch that is learned from here; larger ones take as much longer."""
SECONDS = 1.0
"""What each measurement takes at least."""


def run(arguments: list[str]) -> int:
    """Measure an actor and a learner here, say what follows, and return the exit status."""
    parsed = _parser().parse(arguments)
    import_modules(parsed.imports)
    with input_errors():
        algorithm: Any = algorithm_class(parsed.algorithm)
        if "n_actors" not in algorithm.Config.__dataclass_fields__:
            raise ValueError(f"{algorithm.name} has no actors: plan is for impala and appo")
    require_env(parsed.env)
    measured = min(parsed.batch_unrolls, MOST_MEASURED)
    options = {
        **(find_preset(algorithm.name, parsed.env) or {}),
        "n_actors": 1,
        "n_envs": parsed.envs,
        "n_steps": parsed.unroll,
        "batch_unrolls": measured,
        "max_in_flight": measured,
        "max_lag": MOST_MEASURED,
    }
    with input_errors():
        wrapped = Plan(algorithm=algorithm.name, env_id=parsed.env, wrappers=tuple(parsed.wrappers))
        env_kwargs = parse_env_kwargs(parsed.env_kwargs)
        agent = algorithm(env_of(wrapped), env_kwargs=env_kwargs, **options)
    try:
        unroll, unroll_seconds = _actor(agent)
        update_seconds = _learner(agent) * parsed.batch_unrolls / measured
        weights_bytes = agent.learner.weights().nbytes
    finally:
        agent.close()
    unroll_bytes, message_seconds = _wire(unroll)
    forecast = Forecast(
        n_actors=parsed.actors,
        n_envs=parsed.envs,
        n_steps=parsed.unroll,
        batch_unrolls=parsed.batch_unrolls,
        n_nodes=-(-parsed.actors // parsed.node_actors),
        unroll_seconds=unroll_seconds,
        update_seconds=update_seconds,
        message_seconds=message_seconds,
        unroll_bytes=unroll_bytes,
        weights_bytes=weights_bytes,
    )
    for line in _lines(forecast):
        say(line)
    return 0


def _lines(forecast: Forecast) -> list[str]:
    one = forecast.actor_rate / forecast.n_actors
    return [
        f"an actor here: {one:,.0f} steps/s, unrolls of {forecast.unroll_bytes / 1e3:,.1f} kB",
        f"the learner here: {forecast.learner_rate:,.0f} steps/s, of which an update of "
        f"{forecast.batch_steps:,} steps takes {forecast.update_seconds * 1e3:,.2f} ms and an "
        f"unroll over gRPC {forecast.message_seconds * 1e3:,.2f} ms",
        f"together: {forecast.steps_per_second:,.0f} steps/s, limited by {forecast.limit}; "
        f"{forecast.actors_kept_busy:,} of {forecast.n_actors:,} actors are kept busy",
        f"traffic: {forecast.received_per_second / 1e6:,.2f} MB/s of unrolls to the learner, "
        f"{forecast.sent_per_second / 1e6:,.2f} MB/s of weights to {forecast.n_nodes:,} nodes",
        forecast.verdict(),
    ]


def _actor(agent: Any) -> tuple[Any, float]:
    """An unroll of one actor, and how many seconds it takes."""
    fleet, weights = agent.loop.fleet, agent.learner.weights()
    fleet.start(weights, 0)
    for _ in range(MOST_MEASURED + 1):  # those that were made meanwhile, and the first
        unroll = _received(fleet)
    began, made = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        unroll = _received(fleet)
        made += 1
    seconds = (time.perf_counter() - began) / made
    fleet.pause()
    return unroll, seconds


def _received(fleet: Any) -> Any:
    while (unroll := fleet.receive(1.0)) is None:
        pass
    return unroll


def _learner(agent: Any) -> float:
    """Seconds of an update."""
    batch = agent.loop.collect()
    agent.loop.fleet.pause()
    agent.learner.update(batch)
    began, updates = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        agent.learner.update(batch)
        updates += 1
    return (time.perf_counter() - began) / updates


def _wire(unroll: Any) -> tuple[int, float]:
    """Bytes of an unroll, and seconds that sending and receiving one takes on this machine."""
    from sharpwave.distributed.unroll_codec import unroll_of_bytes, unroll_to_bytes
    from sharpwave.distributed.wire import Method, connect, serve, service

    def take(data: bytes, _: Any) -> bytes:
        unroll_of_bytes(data)
        return b""

    data = unroll_to_bytes(unroll)
    limit = max(2**26, 2 * len(data))
    with serve([service("sharpwave.Plan", [Method("Take", take)])], max_message=limit) as server:
        channel = connect(server.address, max_message=limit)
        send = channel.unary_unary("/sharpwave.Plan/Take")
        send(data)
        began, sent = time.perf_counter(), 0
        while time.perf_counter() < began + SECONDS:
            send(data)
            sent += 1
        seconds = (time.perf_counter() - began) / sent
        channel.close()
    return len(data), seconds


def _parser() -> Parser:
    parser = Parser(
        "plan",
        "Measure one actor and one learner on this machine, and say what will limit many.",
    )
    parser.add_argument("algorithm", metavar="ALGORITHM", help="impala or appo")
    parser.add_argument("env", metavar="ENV")
    parser.add_argument(
        "--actors", type=count(1), default=2, metavar="N", help="of all machines (2)"
    )
    parser.add_argument("--envs", type=count(1), default=16, metavar="N", help="of an actor (16)")
    parser.add_argument(
        "--unroll", type=count(1), default=64, metavar="T", help="steps of an unroll (64)"
    )
    parser.add_argument(
        "--batch-unrolls", type=count(1), default=2, metavar="N", help="of an update (2)"
    )
    parser.add_argument(
        "--node-actors", type=count(1), default=1, metavar="N", help="actors of a machine (1)"
    )
    add_env_options(parser)
    return parser
