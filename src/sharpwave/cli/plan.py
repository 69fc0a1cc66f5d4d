"""`sharpwave plan`."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from sharpwave.algorithms.registry import algorithm_class
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
from sharpwave.distributed.forecast import Forecast
from sharpwave.distributed.stand_ins import StandIns
from sharpwave.distributed.unroll_codec import unroll_to_bytes
from sharpwave.runs.callbacks import Callback

SECONDS = 1.0
"""Minimum duration of each measurement."""
LEAST_UPDATES = 3
"""Minimum number of updates of the measurement in which unrolls are received meanwhile."""
WARM_UP = 8
"""Unrolls that an actor makes before one is timed."""
MAX_LAG = 10**9
"""Nothing is dropped: what is taken is counted, however old it is."""
MOST_NODES = 512
"""Nodes that send at once here: an unroll costs more where there are more, and a process may have
1,024 open files by default. Of more they are a share, and so are the actors and the batch."""
MOST_BYTES = 2**28
"""Maximum size of the unrolls that are in flight here, and of a batch."""
MOST_NODE_ACTORS = 64
"""Actors that a node may have."""


def run(arguments: list[str]) -> int:
    """Measure an actor and a learner here, say what follows, and return the exit status."""
    for line in _lines(measure(arguments)):
        say(line)
    return 0


def measure(arguments: list[str]) -> Forecast:
    """Forecast of training with actors, from measurements of one actor and one learner here."""
    parsed = _parser().parse(arguments)
    import_modules(parsed.imports)
    with input_errors():
        algorithm: Any = algorithm_class(parsed.algorithm)
        if "n_actors" not in algorithm.Config.__dataclass_fields__:
            raise ValueError(f"{algorithm.name} has no actors: plan is for impala and appo")
    require_env(parsed.env)
    with input_errors():
        wrapped = Plan(algorithm=algorithm.name, env_id=parsed.env, wrappers=tuple(parsed.wrappers))
        make = partial(
            algorithm,
            env_of(wrapped),
            env_kwargs=parse_env_kwargs(parsed.env_kwargs),
            **{
                **(find_preset(algorithm.name, parsed.env) or {}),
                "n_envs": parsed.envs,
                "n_steps": parsed.unroll,
                "max_lag": MAX_LAG,
            },
        )
        actor = make(n_actors=1, batch_unrolls=1, max_in_flight=WARM_UP)
    with contextlib.closing(actor):
        unroll, unroll_seconds = _actor(actor)
    unroll_bytes = len(unroll_to_bytes(unroll))
    n_nodes = -(-parsed.actors // parsed.node_actors)
    share = _Share.of(parsed, n_nodes, unroll_bytes)
    with input_errors():
        learner = make(
            # No code travels, so actors in wrapped environments are on the learner's machine.
            actors="auto" if parsed.wrappers else "grpc",
            n_actors=1 if parsed.wrappers else share.n_nodes * share.node_actors,
            batch_unrolls=share.batch_unrolls,
            max_in_flight=None,
        )
    taken_seconds = 0.0
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(learner))
        if not parsed.wrappers:
            stack.enter_context(_nodes(learner, unroll, share))
            taken_seconds = _together(learner) / share.batch_unrolls
        update_seconds = _learner(learner) * parsed.batch_unrolls / share.batch_unrolls
        weights_bytes = learner.learner.weights().nbytes
    return Forecast(
        n_actors=parsed.actors,
        n_envs=parsed.envs,
        n_steps=parsed.unroll,
        batch_unrolls=parsed.batch_unrolls,
        n_nodes=n_nodes,
        unroll_seconds=unroll_seconds,
        update_seconds=update_seconds,
        taken_seconds=taken_seconds,
        unroll_bytes=unroll_bytes,
        weights_bytes=weights_bytes,
    )


class _Share(NamedTuple):
    """The part of nodes, actors and a batch that is tried here."""

    n_nodes: int
    node_actors: int
    batch_unrolls: int

    @classmethod
    def of(cls, parsed: Any, n_nodes: int, unroll_bytes: int) -> _Share:
        """As many nodes as fit, and what they are of a batch: each gets as many weights."""
        most_unrolls = max(1, MOST_BYTES // unroll_bytes)
        node_actors = min(parsed.node_actors, parsed.actors, MOST_NODE_ACTORS, most_unrolls)
        tried = min(n_nodes, MOST_NODES, max(1, most_unrolls // node_actors))
        batch = round(parsed.batch_unrolls * tried * node_actors / parsed.actors)
        return cls(tried, node_actors, min(max(1, batch), parsed.batch_unrolls, most_unrolls))


def _lines(forecast: Forecast) -> list[str]:
    one = forecast.actor_rate / forecast.n_actors
    travels = forecast.taken_seconds > 0
    wire = f"an unroll over gRPC beside it {forecast.taken_seconds * 1e3:,.2f} ms"
    traffic = (
        f"traffic: {forecast.received_per_second / 1e6:,.2f} MB/s of unrolls to the learner, "
        f"{forecast.sent_per_second / 1e6:,.2f} MB/s of weights to {forecast.n_nodes:,} nodes"
    )
    stays = "traffic: none, since wrapped environments have no id by which others could make them"
    return [
        f"an actor here: {one:,.0f} steps/s, unrolls of {forecast.unroll_bytes / 1e3:,.1f} kB",
        f"the learner here: {forecast.learner_rate:,.0f} steps/s; an update of "
        f"{forecast.batch_steps:,} steps alone takes {forecast.update_seconds * 1e3:,.2f} ms"
        + (f", and {wire}" if travels else ""),
        f"together: {forecast.steps_per_second:,.0f} steps/s, limited by {forecast.limit}; "
        f"{forecast.actors_kept_busy:,} of {forecast.n_actors:,} actors are kept busy",
        traffic if travels else stays,
        forecast.verdict(),
    ]


def _actor(agent: Any) -> tuple[Any, float]:
    """An unroll of one actor, and how many seconds it takes."""
    fleet, weights = agent.loop.fleet, agent.learner.weights()
    fleet.start(weights, 0)
    for _ in range(WARM_UP + 1):  # those that were made meanwhile, and the first
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


@contextlib.contextmanager
def _nodes(agent: Any, unroll: Any, share: _Share) -> Iterator[None]:
    """Inside, nodes of other processes have joined a learner and send what it asks for."""
    fleet = agent.loop.fleet
    with contextlib.redirect_stderr(io.StringIO()):  # nobody needs to start actors
        fleet.start(agent.learner.weights(), agent.updates)
    with StandIns(fleet.address, unroll, share.n_nodes, share.node_actors) as stand_ins:
        while fleet.stats().alive < share.n_nodes * share.node_actors:
            stand_ins.check()
            time.sleep(0.05)
        yield


def _together(agent: Any) -> float:
    """Seconds of an update while unrolls are received, and until the next one can begin."""
    clock = _Clock()
    agent.train(10**12, callbacks=clock)
    return (clock.ended - clock.began) / clock.updates


class _Clock(Callback):
    """Ends a run after some updates, of which the first are not counted."""

    def __init__(self) -> None:
        self.made = time.perf_counter()
        self.began = self.ended = 0.0
        self.updates = 0

    def on_train_batch(self, **_: Any) -> bool:
        """Count an update; whether there should be another."""
        self.ended = time.perf_counter()
        if not self.began:
            if self.ended > self.made + SECONDS:
                self.began = self.ended
            return True
        self.updates += 1
        return self.ended < self.began + 2 * SECONDS or self.updates < LEAST_UPDATES


def _parser() -> Parser:
    parser = Parser(
        "plan",
        "Measure one actor and the learner on this machine, and predict the bottleneck with many "
        "actors.",
    )
    parser.add_argument("algorithm", metavar="ALGORITHM", help="impala or appo")
    parser.add_argument("env", metavar="ENV", help="id of the environment")
    parser.add_argument(
        "--actors",
        type=count(1),
        default=2,
        metavar="N",
        help="actors on all machines together (default: 2)",
    )
    parser.add_argument(
        "--envs",
        type=count(1),
        default=16,
        metavar="N",
        help="environments per actor (default: 16)",
    )
    parser.add_argument(
        "--unroll", type=count(1), default=64, metavar="T", help="steps per unroll (default: 64)"
    )
    parser.add_argument(
        "--batch-unrolls",
        type=count(1),
        default=2,
        metavar="N",
        help="unrolls per update (default: 2)",
    )
    parser.add_argument(
        "--node-actors",
        type=count(1),
        default=1,
        metavar="N",
        help="actors per machine (default: 1)",
    )
    add_env_options(parser)
    return parser
