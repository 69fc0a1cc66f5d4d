"""Environments with several agents: their steps, and learning in them, in seconds of one core."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench_envs import ACTIONS, as_rate, taking
from gymnasium import spaces
from harness import (
    FLOOR,
    OURS,
    AtMost,
    Builder,
    Measurement,
    Operation,
    Ratio,
    Result,
    Row,
    collect,
)

SPREAD = "mpe2/simple_spread_v3"
HERE = Path(__file__).parent
FIRST_UPDATE = {
    OURS: f"""
import sys
import sharpwave as sw
sw.MAPPO({SPREAD!r}, n_envs=64, n_steps=25, seed=0, threads=1).train(64 * 25)
assert "torch" not in sys.modules
""",
    "plain torch": "from plain_mappo import seeded; seeded().iterate()",
}
OBS, STATE, REST = 4 * 18, 4 * 3 * 18 / 3, 36
"""Bytes of an agent's step in a rollout: its observation, its share of the state, and actions,
rewards, values, advantages and flags."""


def rows() -> Iterator[Row | Result]:
    yield spread(64, [Ratio("mpe2", 500.0), Ratio("numpy", 5.0)])
    yield spread(1024, [Ratio("numpy", 5.0)])
    yield from (overhead(n) for n in (1, 64))
    yield mappo("in native code", "native", 10.0)
    yield mappo("by autograd", "torch", 2.0, {FLOOR: networks_alone})
    yield process_start()
    yield from (memory(backend) for backend in ("native", "torch"))


def spread(n: int, targets: list[Ratio]) -> Row:
    contenders: dict[str, Builder] = {OURS: partial(native, n), "numpy": partial(vectorized, n)}
    if any(target.peer == "mpe2" for target in targets):
        contenders["mpe2"] = partial(one_by_one, n)
    return Row(
        f"step {n} simple_spread_v3",
        contenders,
        targets,
        ops_per_call=n,
        note="3 agents, random actions, with the resets that they lead to",
        derive=as_rate,
        clock=time.process_time,
    )


def overhead(n: int) -> Row:
    """The time that PettingZooVectorEnv adds to environments that do nothing."""
    return Row(
        f"PettingZooVectorEnv around {n} environments of 3 agents",
        {OURS: partial(wrapped, n), "plain": partial(unwrapped, n)},
        [AtMost(15e-6, "s")],
        ops_per_call=n * 3,
        note="per agent step on top of the environment's own, which costs nothing here",
        derive=on_top,
        clock=time.process_time,
    )


def on_top(result: Result) -> Result:
    ours, plain = result.measured[OURS], result.measured.pop("plain")
    difference = ours.median - plain.median, ours.minimum - plain.minimum
    added = Measurement(*difference, ours.rounds)
    return replace(result, measured={OURS: added}, unit="s/agent step")


class Idle:
    """Three agents to whom nothing happens."""

    def __init__(self) -> None:
        self.possible_agents = self.agents = [f"agent_{i}" for i in range(3)]
        self.obs = {agent: np.zeros(18, np.float32) for agent in self.agents}
        self.rewards = dict.fromkeys(self.agents, 1.0)
        self.flags = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.spaces = spaces.Box(-1, 1, (18,), np.float32), spaces.Discrete(5)

    def observation_space(self, _: str) -> Any:
        """The same for all."""
        return self.spaces[0]

    def action_space(self, _: str) -> Any:
        """The same for all."""
        return self.spaces[1]

    def reset(self, **_: Any) -> Any:
        """The result of a step."""
        return self.obs, self.infos

    def step(self, _: Any) -> Any:
        """Always the same."""
        return self.obs, self.rewards, self.flags, self.flags, self.infos


def wrapped(n: int) -> Operation:
    from sharpwave.envs import PettingZooVectorEnv

    env = PettingZooVectorEnv([Idle] * n)
    env.reset(seed=0)
    return taking(env.step, [{"agent": actions} for actions in choices(n)])


def unwrapped(n: int) -> Operation:
    envs = [Idle() for _ in range(n)]

    def step(actions: Any) -> None:
        for env, row in zip(envs, actions, strict=True):
            env.step(dict(zip(env.agents, row, strict=True)))

    return taking(step, choices(n))


def mappo(way: str, backend: str, at_least: float, others: Any = None) -> Row:
    note = "2 x 64, one minibatch; plain torch steps the environments in NumPy"
    if others:
        note += "; the floor is the networks' passes through autograd, without collecting or a loss"
    return Row(
        f"MAPPO simple_spread_v3, 64 x 25, 10 epochs, {way}",
        {OURS: partial(iterating, backend), "plain torch": plain, **(others or {})},
        [Ratio("plain torch", at_least)],
        ops_per_call=64 * 25,
        note=note,
        derive=as_rate,
        clock=time.process_time,
    )


def process_start() -> Result:
    def seconds(name: str) -> float:
        began = cpu_seconds_of_children()
        subprocess.run([sys.executable, "-c", FIRST_UPDATE[name]], cwd=HERE, check=True)
        return cpu_seconds_of_children() - began

    return collect(
        "process start to the first update of MAPPO",
        "s",
        {name: partial(seconds, name) for name in FIRST_UPDATE},
        [AtMost(0.7, "s")],
        note="CPU seconds: Python starts, imports the library, collects and learns from 64 x 25 "
        "steps of simple_spread_v3; the native backend, which does not import torch",
        rounds=3,
    )


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory(backend: str) -> Result:
    """Bytes that the arrays of a rollout hold for an agent's step, whoever shares them."""

    def bytes_per_row() -> float:
        loop = agent_of(backend).loop
        batch = loop.collect()["agent"]
        rollout = loop.collector.rollouts["agent"]
        arrays = [x for x in vars(rollout).values() if isinstance(x, np.ndarray)]
        arrays.append(np.asarray(batch.joint))
        return distinct_bytes(arrays) / rollout.valid.size

    return collect(
        f"memory of a rollout per agent step, {backend} backend",
        "B",
        {OURS: bytes_per_row},
        [AtMost(OBS + STATE + REST, "B")],
        note=f"64 x 25 of simple_spread_v3, {OBS} B of observation; the state of an environment, "
        f"{3 * STATE:.0f} B, is there once for its 3 agents",
        rounds=1,
    )


def distinct_bytes(arrays: list[Any]) -> int:
    """The size of the memory that some arrays lie in, counted once."""
    spans = sorted((x.__array_interface__["data"][0], x.nbytes) for x in arrays)
    total = end = 0
    for start, size in spans:
        total += max(0, start + size - max(start, end))
        end = max(end, start + size)
    return total


def agent_of(backend: str) -> Any:
    import sharpwave as sw

    options: dict[str, Any] = {"n_envs": 64, "n_steps": 25, "seed": 0, "threads": 1}
    return sw.MAPPO(SPREAD, backend=backend, **options)


def iterating(backend: str) -> Operation:
    agent = agent_of(backend)

    def iterate() -> None:
        agent.learner.update(agent.loop.collect())

    return iterate


def plain() -> Operation:
    from plain_mappo import seeded

    return seeded().iterate


def networks_alone() -> Operation:
    """Actor and critic forward and backward, as often as an update needs them."""
    import torch
    from plain_mappo import network

    actor, critic = network(18 + 3, 5), network(3 * 18, 1)
    seen, joint = torch.randn(64 * 25 * 3, 18 + 3), torch.randn(64 * 25, 3 * 18)

    def passes() -> None:
        for _ in range(10):
            (actor(seen).mean() + critic(joint).mean()).backward()

    return passes


def choices(n: int) -> list[Any]:
    return list(np.random.default_rng(0).integers(0, 5, (ACTIONS, n, 3)))


def native(n: int) -> Operation:
    from sharpwave.envs.multi.native import NativeMultiAgentEnv

    env = NativeMultiAgentEnv(SPREAD, n, threads=1)
    env.reset(seed=0)
    return taking(env.step, [{"agent": actions} for actions in choices(n)])


def vectorized(n: int) -> Operation:
    from spread import NumpySpread

    return taking(NumpySpread(n).step, choices(n))


def one_by_one(n: int) -> Operation:
    """mpe2's own, each stepped in its turn."""
    from mpe2 import simple_spread_v3

    envs: list[Any] = [simple_spread_v3.parallel_env() for _ in range(n)]
    for i, env in enumerate(envs):
        env.reset(seed=i)

    def step(actions: Any) -> None:
        for env, row in zip(envs, actions, strict=True):
            env.step({f"agent_{i}": int(action) for i, action in enumerate(row)})
            if not env.agents:
                env.reset()

    return taking(step, choices(n))
