"""Steps of many environments through Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
from harness import OURS, Builder, Operation, Ratio, Result, Row

ACTIONS = 64
"""Different actions that are taken in turn."""


def rows() -> Iterator[Row]:
    yield cart_pole(64, [Ratio("rlox", 6.4), Ratio("gymnasium", 12.0)])
    yield cart_pole(1024, [Ratio("rlox", 4.3), Ratio("gymnasium", 2.6)])
    yield others("Pendulum-v1", 64)
    yield others("Acrobot-v1", 64)
    yield others("MountainCar-v0", 64)
    yield others("MountainCarContinuous-v0", 64)


def cart_pole(n: int, targets: list[Ratio]) -> Row:
    def vectorized() -> Operation:
        return stepping(gymnasium_of("CartPole-v1", n, "vector_entry_point"))

    return Row(
        f"step {n} CartPole-v1",
        {
            OURS: native("CartPole-v1", n),
            "gymnasium": vectorized,
            "SyncVectorEnv": lambda: stepping(gymnasium_of("CartPole-v1", n, "sync")),
            "rlox": lambda: rlox("CartPole-v1", n),
        },
        targets,
        ops_per_call=n,
        note="random actions, with the resets that they lead to",
        derive=as_rate,
    )


def others(env_id: str, n: int) -> Row:
    contenders: dict[str, Builder] = {
        OURS: native(env_id, n),
        "SyncVectorEnv": lambda: stepping(gymnasium_of(env_id, n, "sync")),
    }
    if env_id == "Pendulum-v1":
        contenders["rlox"] = lambda: rlox(env_id, n)
    return Row(f"step {n} {env_id}", contenders, ops_per_call=n, derive=as_rate)


def native(env_id: str, n: int) -> Builder:
    def build() -> Operation:
        from sharpwave.envs import NativeVectorEnv

        return stepping(NativeVectorEnv(env_id, n))

    return build


def gymnasium_of(env_id: str, n: int, mode: str) -> Any:
    import gymnasium

    return gymnasium.make_vec(env_id, n, vectorization_mode=mode)


def stepping(env: Any) -> Operation:
    env.reset(seed=0)
    env.action_space.seed(0)
    return taking(env.step, [env.action_space.sample() for _ in range(ACTIONS)])


def rlox(env_id: str, n: int) -> Operation:
    from rlox import VecEnv

    env = VecEnv(n, seed=0, env_id=env_id)
    env.reset_all()
    rng = np.random.default_rng(0)
    if env_id == "CartPole-v1":
        choices = rng.integers(2, size=(ACTIONS, n), dtype=np.uint32)
        return taking(env.step_all, list(choices))
    return taking(env.step_all, list(rng.uniform(-2, 2, (ACTIONS, n)).astype(np.float32)))


def taking(step: Callable[[Any], object], actions: list[Any]) -> Operation:
    following = cycle(actions).__next__
    return lambda: step(following())


def as_rate(result: Result) -> Result:
    return replace(result, unit="s/step")
