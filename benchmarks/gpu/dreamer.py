"""Gradient steps of DreamerV3 on a GPU: ours, the same as a CUDA graph, and the plain step.

The plain step is what the definitions say, operation by operation: the model observes and imagines
step by step, and rows are normalized, drawn and compared by plain torch. It is measured as it is
and as a CUDA graph, in the same process and in turns with ours.

    python benchmarks/gpu/dreamer.py --out dreamer.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from sharpwave.algorithms.dreamer import DreamerV3Config, DreamerV3Learner
from sharpwave.config.presets import settings_of
from sharpwave.learners.graphs import replay_as_graphs
from sharpwave.learners.sequences import SequenceBatch

sys.path.append(str(Path(__file__).resolve().parent.parent))
from plain_dreamer import as_defined

IMAGE = spaces.Box(0, 255, (64, 64, 3), np.uint8)
STATE = spaces.Box(-1, 1, (24,), np.float32)
CASES = {
    "size12m image": ("size12m", IMAGE),
    "size1m state": ("size1m", STATE),
    "size50m image": ("size50m", IMAGE),
    "size200m image": ("size200m", IMAGE),
}
STEPS = {"eager": 3, "graph": 10}
"""Gradient steps that are timed together."""


def learner_of(size: str, space: Any) -> DreamerV3Learner:
    """A learner of six actions."""
    config = DreamerV3Config(**settings_of("dreamer_v3", size))
    return DreamerV3Learner(config, space, spaces.Discrete(6), seeds=0, device="cuda")


def batch_for(learner: DreamerV3Learner) -> SequenceBatch:
    """Sequences of noise with some ends."""
    config, space = learner.config, learner.observation_space
    shape: tuple[int, ...] = space.shape or ()
    generator = torch.Generator("cuda").manual_seed(0)
    t, n = config.sequence_length, config.batch_size
    options: dict[str, Any] = {"generator": generator, "device": "cuda"}
    if space.dtype == np.uint8:
        obs = torch.randint(256, (t, n, *shape), dtype=torch.uint8, **options)
    else:
        obs = torch.randn(t, n, *shape, **options)
    ends = torch.rand(t, n, **options) < 0.02
    return SequenceBatch(
        obs=obs,
        prev_actions=torch.randint(6, (t, n), **options),
        rewards=torch.randn(t, n, **options),
        is_first=ends.roll(1, 0),
        is_last=ends,
        is_terminal=ends,
        deter=torch.zeros(n, config.deter, device="cuda", dtype=torch.float16),
        stoch=torch.zeros(n, config.latents, device="cuda", dtype=torch.uint8),
    )


class Way:
    """One way to take gradient steps.

    Args:
        size: Name of the preset.
        space: Of observations.
        is_plain: As the definitions say.
        is_graph: As a CUDA graph.
    """

    def __init__(self, size: str, space: Any, *, is_plain: bool, is_graph: bool) -> None:
        self.is_plain, self.is_graph = is_plain, is_graph
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.learner = learner_of(size, space)
        self.batch = batch_for(self.learner)
        if is_graph:
            replay_as_graphs(self.learner)
        began = time.perf_counter()
        for _ in range(5 if is_graph else 2):
            self.step()
        torch.cuda.synchronize()
        self.first_seconds = time.perf_counter() - began
        self.peak_gb = (torch.cuda.max_memory_allocated() - before) / 1e9

    def step(self) -> Any:
        """A gradient step."""
        with as_defined() if self.is_plain else contextlib.nullcontext():
            return self.learner.update(self.batch)

    def milliseconds(self) -> float:
        """The time of a gradient step."""
        steps = STEPS["graph" if self.is_graph else "eager"]
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began) / steps

    def kernels(self) -> int:
        """Kernels of a gradient step."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as found:
            self.step()
            torch.cuda.synchronize()
        return sum(event.device_type.name == "CUDA" for event in found.events())


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Medians over rounds in which all ways take turns."""
    size, space = CASES[name]
    kinds = {"ours": (False, False), "ours graph": (False, True), "plain graph": (True, True)}
    if size in ("size12m", "size1m"):
        kinds["plain"] = (True, False)
    ways = {k: Way(size, space, is_plain=p, is_graph=g) for k, (p, g) in kinds.items()}
    times: dict[str, list[float]] = {kind: [] for kind in ways}
    for _ in range(rounds):
        for kind, way in ways.items():
            times[kind].append(way.milliseconds())
    row: dict[str, Any] = {"name": name}
    for kind, way in ways.items():
        row[kind] = {
            "ms": float(np.median(times[kind])),
            "peak_gb": way.peak_gb,
            "first_seconds": way.first_seconds,
            "kernels": way.kernels(),
        }
    ours = row["ours graph"]["ms"]
    row["x plain graph"] = row["plain graph"]["ms"] / ours
    if "plain" in row:
        row["x plain"] = row["plain"]["ms"] / ours
    return row


def main() -> None:
    """Measure, print, and write a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parsed = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    rows = []
    for name in parsed.cases:
        rows.append(measure(name, parsed.rounds))
        print(json.dumps(rows[-1]), flush=True)
        torch.cuda.empty_cache()
        if parsed.out is not None:
            parsed.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
