"""Gradient steps of PPO and SAC on a GPU: python benchmarks/gpu/gradient_steps.py.

One step by autograd, with its losses as they are and compiled, called from Python and replayed in
a CUDA graph; on minibatches of 256 and 4,096 rows and networks of 2 x 64 and 2 x 256.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import timing
import torch
from gymnasium import spaces

import sharpwave as sw
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.replay import ReplayBatch

OBS, ACTIONS = spaces.Box(-1, 1, (17,), np.float32), spaces.Box(-1, 1, (6,), np.float32)
ROWS, WIDTHS = (256, 4096), (64, 256)
Step = Callable[[], object]


def learner(name: str, width: int, compiled: bool) -> Any:
    """A learner of torch's, whose losses may be compiled."""
    kind: Any = getattr(sw, f"{name}Learner")
    config = getattr(sw, f"{name}Config")(hidden=(width, width))
    made = kind(config, OBS, ACTIONS, seeds=0, device="cuda")
    if compiled:
        for loss in (*made.compiled_too, *made.losses):
            setattr(made, loss, torch.compile(getattr(made, loss)))
    return made


def column(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()


def ppo_step(made: Any, rows: int) -> Step:
    names = ("log_probs", "values", "advantages", "returns")
    columns: Any = {name: column(seed, rows) for seed, name in enumerate(names)}
    batch = OnPolicyBatch(obs=column(4, rows, 17), actions=column(5, rows, 6), **columns)
    return partial(made.step, batch, torch.arange(rows, device="cuda"))


def sac_step(made: Any, rows: int) -> Step:
    batch = ReplayBatch(
        obs=column(0, rows, 17),
        actions=column(1, rows, 6).tanh(),
        rewards=column(2, rows),
        next_obs=column(3, rows, 17),
        discounts=column(4, rows).sigmoid(),
    )
    return partial(made.update, batch)


def main() -> None:
    print("| step | rows | width | losses | called, us | in a graph, us |\n" + 6 * "|---" + "|")
    steps = {"PPO": ppo_step, "SAC": sac_step}
    for name, rows, width, compiled in product(steps, ROWS, WIDTHS, (False, True)):
        torch.compiler.reset()  # a second number of rows would be compiled for any number
        made = learner(name, width, compiled)
        step = steps[name](made, rows)
        graph = timing.graph_ms(step, generator=made.generator) * 1e3
        called = timing.eager_ms(step) * 1e3
        losses = "compiled" if compiled else "as they are"
        print(f"| {name} | {rows} | {width} | {losses} | {called:.0f} | {graph:.0f} |", flush=True)


if __name__ == "__main__":
    main()
