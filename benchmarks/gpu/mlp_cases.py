"""Parts of an update of PPO on a GPU in all their ways: python benchmarks/gpu/mlp_cases.py.

Forward and backward passes of the actor and the critic of two tasks: layer by layer, as one
operation, and as one operation whose products a kernel of ours computes together with what follows;
each with tf32 and bfloat16, in a CUDA graph, beside the relative errors of outputs and gradients
against float64. Then clipping and Adam, and the gather of a minibatch.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from case import error
from timing import graph_ms
from torch import Tensor, nn

from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.devices import matmul_precision
from sharpwave.nn.mlp import MLP, make_mlp
from sharpwave.primitives.adam import plain as adam_of_torch
from sharpwave.primitives.adam import tensors as adam
from sharpwave.primitives.mlp import triton as jit

TASKS = {
    "A": ((48, 512, 256, 128), (12, 1), 24_576),
    "B": ((4, 64, 64), (2, 1), 131_072),
}
"""Inputs and hidden layers, outputs of both networks, and rows of a minibatch."""
TILES = [
    jit.Tiles(128, 128, 32, 4, 3),
    jit.Tiles(128, 128, 32, 4, 4),
    jit.Tiles(128, 128, 32, 8, 3),
    jit.Tiles(128, 128, 64, 8, 3),
    jit.Tiles(128, 256, 32, 8, 3),
    jit.Tiles(128, 64, 32, 4, 3),
    jit.Tiles(64, 128, 32, 4, 4),
    jit.Tiles(64, 256, 32, 4, 4),
    jit.Tiles(64, 64, 32, 4, 4),
]
DIRECTIONS = ("forward", "backward", "weight")
Call = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--matmul", nargs="*", default=["tf32", "bf16"])
    parser.add_argument("--no-tiles", action="store_true", help="leave our own products out")
    arguments = parser.parse_args()
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for task in arguments.tasks:
        for matmul in arguments.matmul:
            networks(task, matmul, [] if arguments.no_tiles else TILES)
    steps(400_000)
    minibatches(98_304, 24_576)


def networks(task: str, matmul: str, tiles: list[jit.Tiles]) -> None:
    """Print a line for each way of both networks of a task, then for the quickest together."""
    body, outputs, rows = TASKS[task]
    generator = np.random.default_rng(0)
    nets = [make_mlp(body[0], body[1:], n, "elu", generator).cuda() for n in outputs]
    x = torch.randn(rows, body[0], device="cuda")
    grads = [torch.randn(rows, n, device="cuda") / rows for n in outputs]
    exact = gradients([copy.deepcopy(net).double() for net in nets], x.double(), grads, layered)

    def line(name: str, way: Callable[[Any, Tensor], Tensor]) -> float:
        try:
            with matmul_precision(matmul):
                found = gradients(nets, x, grads, way)
                off = [error(one, other) for one, other in zip(found, exact, strict=True)]
                ms = graph_ms(lambda: gradients(nets, x, grads, way), calls=5)
        except Exception as failure:  # a tile that does not fit is a line too
            print(f"{name:58} {type(failure).__name__}: {str(failure)[:120]}", flush=True)
            return math.inf
        numbers = f"errors {max(off[: len(nets)]):.1e} {max(off[len(nets) :]):.1e}"
        print(f"{name:58} {ms:8.4f} ms  {numbers}", flush=True)
        return ms

    print(f"\n{task}: {rows} rows of {body} to {outputs}, {matmul}")
    line("layer by layer", layered)
    least = dict.fromkeys(DIRECTIONS, line("one operation", as_one))
    best: dict[str, jit.Tiles | None] = dict.fromkeys(DIRECTIONS)
    transposes = False
    turns = (False, True) if matmul == "tf32" else (False,)
    for tile, direction, jit.TRANSPOSES in product(tiles, DIRECTIONS, turns):
        if jit.TRANSPOSES and direction != "backward":
            continue
        text = " ".join(f"{name[0]}{value}" for name, value in tile._asdict().items())
        jit.TILES = {**dict.fromkeys(DIRECTIONS), direction: tile}
        ms = line(f"own {direction}, {text}{', transposed' * jit.TRANSPOSES}", as_one)
        if ms < least[direction]:
            least[direction], best[direction] = ms, tile
            transposes = jit.TRANSPOSES if direction == "backward" else transposes
    jit.TILES, jit.TRANSPOSES = best, transposes
    line("quickest of each", as_one)
    print(f"  {best}{', transposed' * transposes}")
    jit.TILES = dict.fromkeys(DIRECTIONS)


def layered(net: MLP, x: Tensor) -> Tensor:
    return nn.Sequential.forward(net, x)


def as_one(net: MLP, x: Tensor) -> Tensor:
    return net.with_latent(x)[0]


def gradients(
    nets: list[Any], x: Tensor, grads: list[Tensor], way: Callable[[Any, Tensor], Tensor]
) -> list[Tensor]:
    """Outputs, and gradients of all parameters."""
    found = [way(net, x) for net in nets]
    parameters = [one for net in nets for one in net.parameters()]
    given = [grad.to(output.dtype) for grad, output in zip(grads, found, strict=True)]
    return [*(one.detach() for one in found), *torch.autograd.grad(found, parameters, given)]


def steps(size: int) -> None:
    """Print times of clipping and Adam."""
    parts = [torch.randn(size, device="cuda") * 1e-2 for _ in range(2)]
    moments = [torch.zeros(size, device="cuda") for _ in range(2)]
    numbers = [torch.full((), value, device="cuda") for value in (1.0, 1e-3)]
    block = adam.Block(*parts, *moments, *numbers)
    betas, eps = (0.9, 0.999), 1e-5
    calls: dict[str, Call] = {
        "clip and Adam of torch": lambda: adam_of_torch.clip_and_step(block, 1.0, betas, eps, None),
        "clip, then step": lambda: (
            adam.clip(block.grad, 1.0),
            adam.step(block, betas=betas, eps=eps),
        ),
        "clip and step": lambda: adam.clip_and_step(block, 1.0, betas=betas, eps=eps),
        "Adam of torch": lambda: adam_of_torch.step(block, betas, eps, None),
        "step": lambda: adam.step(block, betas=betas, eps=eps),
    }
    print(f"\n{size} parameters")
    for name, call in calls.items():
        print(f"{name:58} {graph_ms(call) * 1e3:8.2f} us", flush=True)


def minibatches(rows: int, size: int) -> None:
    """Print times of the gather of a minibatch."""
    names = ("log_probs", "values", "advantages", "returns")
    columns: Any = {name: torch.randn(rows, device="cuda") for name in names}
    obs, actions = (torch.randn(rows, n, device="cuda") for n in (48, 12))
    batch = OnPolicyBatch(obs=obs, actions=actions, **columns)
    chosen = torch.randperm(rows, device="cuda")[:size]
    alone = [obs, actions, *columns.values()]
    calls: dict[str, Call] = {
        "each column": lambda: [column.index_select(0, chosen) for column in alone],
        "all columns": lambda: batch.rows(chosen),
    }
    print(f"\n{size} of {rows} rows")
    for name, call in calls.items():
        print(f"{name:58} {graph_ms(call) * 1e3:8.2f} us", flush=True)


if __name__ == "__main__":
    main()
