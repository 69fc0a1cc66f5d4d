"""Offline learning on the CPU: gradient steps beside rlox, and the products that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import FLOOR, OURS, Operation, Ratio, Row

N, OBS, ACT, BATCH, WIDTH = 20_000, 11, 3, 256, 256
OTHERS = 10
"""Actions of each kind that CQL asks the critics about."""


def rows() -> Iterator[Row]:
    yield row("TD3BC", "td3_bc", 3.0, steps=10, products=11.5)
    yield row("IQL", "iql", 3.0, steps=10, products=15, actor="deterministic")
    yield row("BC", "bc", 4.0, steps=50, products=3)
    of_critics = 6 * (2 * OTHERS + 1)
    yield row("CQL", "cql", 4.0, steps=2, products=of_critics + 12, next_actions=False)


def row(
    name: str, module: str, at_least: float, *, products: float, steps: int, **options: Any
) -> Row:
    return Row(
        f"{name} gradient step, 2 x {WIDTH}, {BATCH} rows",
        {
            OURS: partial(our_steps, name, steps, options),
            "rlox": partial(rlox_steps, name, module, steps),
            FLOOR: partial(only_products, products * steps),
        },
        [Ratio("rlox", at_least)],
        ops_per_call=steps,
        note=f"drawing a batch included; floor: its {products:g} products of {WIDTH} x {WIDTH}"
        f" matrices with {BATCH} rows alone",
    )


def columns() -> list[Any]:
    """Flat columns with uint8 flags, which both libraries take."""
    generator = np.random.default_rng(0)
    return [
        generator.normal(size=N * OBS).astype(np.float32),
        generator.normal(size=N * OBS).astype(np.float32),
        generator.uniform(-1, 1, N * ACT).astype(np.float32),
        generator.normal(size=N).astype(np.float32),
        (np.arange(N) % 100 == 99).astype(np.uint8),
        np.zeros(N, np.uint8),
    ]


def our_steps(name: str, steps: int, options: dict[str, Any]) -> Operation:
    import sharpwave as sw

    algorithm = getattr(sw, name)(sw.OfflineDatasetBuffer(*columns()), **options)
    algorithm.train(4)
    return partial(algorithm.train, steps)


def rlox_steps(name: str, module: str, steps: int) -> Operation:
    import importlib

    import rlox

    make: Callable[..., Any] = getattr(importlib.import_module(f"rlox.algorithms.{module}"), name)
    algorithm = make(rlox.OfflineDatasetBuffer(*columns()), OBS, ACT)
    algorithm.train(4)
    return partial(algorithm.train, steps)


def only_products(count: float) -> Operation:
    import torch

    x, weight = torch.randn(BATCH, WIDTH), torch.randn(WIDTH, WIDTH)
    out = torch.empty(BATCH, WIDTH)

    def multiply() -> None:
        for _ in range(round(count)):
            torch.mm(x, weight, out=out)

    return multiply
