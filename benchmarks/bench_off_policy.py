"""Learning from replay on the CPU: gradient steps and whole steps beside SB3.

Networks are 2 x 256 with ReLU and batches have the zoo's sizes; SB3 has one torch thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench_offline import only_products
from harness import FLOOR, OURS, Operation, Ratio, Row

WIDTHS = [256, 256]
STARTS = 300
"""Steps before the measurement, which fill the buffer."""
ZOO_DQN: dict[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "train_freq": 256,
    "gradient_steps": 128,
    "target_update_interval": 10,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
}
ENVS = {"DQN": "CartPole-v1", "SAC": "Pendulum-v1", "TD3": "Pendulum-v1"}


def rows() -> Iterator[Row]:
    yield gradient_steps("SAC", 3.0, threads=1, batch=256, products=15)
    yield gradient_steps("SAC", 4.0, threads=2, batch=256, products=15)
    yield gradient_steps("SAC", 1.25, threads=1, batch=256, products=15, backend="torch")
    yield gradient_steps("TD3", 3.0, threads=1, batch=256, products=11.5)
    yield gradient_steps("TD3", 3.0, threads=2, batch=256, products=11.5)
    yield gradient_steps("DQN", 8.0, threads=1, batch=64, products=1)
    yield gradient_steps("DQN", 8.0, threads=2, batch=64, products=1)
    yield whole_steps("SAC", 3.0, steps=20, threads=1)
    yield whole_steps("SAC", 3.5, steps=20, threads=2)
    yield whole_steps("TD3", 3.0, steps=20, threads=1)
    yield whole_steps("TD3", 3.0, steps=20, threads=2)
    yield whole_steps("DQN", 8.0, steps=256, threads=1, **ZOO_DQN)
    yield whole_steps("DQN", 8.0, steps=256, threads=2, **ZOO_DQN)


def in_words(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"


def gradient_steps(
    name: str,
    at_least: float,
    *,
    threads: int,
    batch: int,
    products: float,
    backend: str = "native",
) -> Row:
    """Draw a batch and learn from it, some times."""
    steps = 4 if batch == 256 else 20
    way = in_words(threads) if backend == "native" else "torch"
    return Row(
        f"{name} gradient step, {batch} rows, {way}",
        {
            OURS: partial(our_gradient_steps, name, steps, threads, batch, backend),
            "SB3": partial(sb3_gradient_steps, name, steps, batch),
            FLOOR: partial(only_products, products * steps),
        },
        [Ratio("SB3", at_least)],
        ops_per_call=steps,
        patience=3,
        note=f"drawing a batch included; floor: its {products:g} products of 256 x 256 matrices"
        " with 256 rows alone, on one thread",
    )


def our_gradient_steps(name: str, steps: int, threads: int, batch: int, backend: str) -> Operation:
    algorithm = ours(name, threads=threads, backend=backend, batch_size=batch)
    algorithm.train(STARTS)
    loop, learner = algorithm.loop, algorithm.learner
    loop.follow(1.0)

    def learn() -> None:
        for _ in range(steps):
            learner.update(loop.sample())

    return learn


def sb3_gradient_steps(name: str, steps: int, batch: int) -> Operation:
    from stable_baselines3.common.logger import configure

    algorithm = sb3(name, batch_size=batch)
    algorithm.learn(STARTS - 1)
    algorithm.set_logger(configure(None, []))
    return partial(algorithm.train, steps, batch)


def whole_steps(name: str, at_least: float, *, steps: int, threads: int, **options: Any) -> Row:
    """Steps of the environment, with the gradient steps that follow them."""
    settings = "zoo" if options else "defaults"
    return Row(
        f"{name} {ENVS[name]}, {settings}, {in_words(threads)}, per step",
        {
            OURS: partial(our_steps, name, steps, threads, options),
            "SB3": partial(sb3_steps, name, steps, options),
        },
        [Ratio("SB3", at_least)],
        ops_per_call=steps,
        patience=5,
        note="acting, stepping the environment, storing and learning",
    )


def our_steps(name: str, steps: int, threads: int, options: dict[str, Any]) -> Operation:
    algorithm = ours(name, threads=threads, **options)
    algorithm.train(options.get("learning_starts", STARTS) + steps)
    return partial(algorithm.train, steps)


def sb3_steps(name: str, steps: int, options: dict[str, Any]) -> Operation:
    algorithm = sb3(name, **options)
    algorithm.learn(options.get("learning_starts", STARTS) + steps)
    return partial(algorithm.learn, steps, reset_num_timesteps=False)


def ours(name: str, **options: Any) -> Any:
    import sharpwave as sw

    if name == "DQN":
        options = {"double_dqn": False, **options}  # which SB3 does not have
    options = {"learning_starts": STARTS, "hidden": WIDTHS, **options}
    return getattr(sw, name)(ENVS[name], **options)


def sb3(name: str, **options: Any) -> Any:
    import stable_baselines3

    options = {"learning_starts": STARTS, **options}
    return getattr(stable_baselines3, name)(
        "MlpPolicy",
        ENVS[name],
        policy_kwargs={"net_arch": list(WIDTHS)},
        device="cpu",
        **options,
    )
