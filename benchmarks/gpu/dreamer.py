"""Gradient steps of DreamerV3 on a GPU: ours, the same as a CUDA graph, and the plain step.

The plain step is what the definitions say, operation by operation: the model observes and imagines
step by step, and rows are normalized, drawn and compared by plain torch. It is measured as it is
and as a CUDA graph, in the same process and in turns with ours. More rows say what the host needs
between two gradient steps that draw from a buffer on the device, and how long 16 actions take.

    python benchmarks/gpu/dreamer.py --out dreamer.json
    python benchmarks/gpu/dreamer.py --bf16 --cases "size200m image" --no-loop
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import sharpwave as sw
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


def learner_of(size: str, space: Any, *, bf16: bool) -> DreamerV3Learner:
    """A learner of six actions."""
    config = DreamerV3Config(**settings_of("dreamer_v3", size), bf16=bf16)
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
        bf16: With encoder, decoder and heads in bfloat16.
    """

    def __init__(
        self, size: str, space: Any, *, is_plain: bool, is_graph: bool, bf16: bool = False
    ) -> None:
        self.is_plain, self.is_graph = is_plain, is_graph
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.learner = learner_of(size, space, bf16=bf16)
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


class Noise(gym.Env[Any, Any]):
    """Shows noise, of which one piece is made.

    Args:
        space: Of observations.
    """

    action_space = spaces.Discrete(6)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self._seen = space, space.sample()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode of 200 steps."""
        super().reset(seed=seed, options=options)
        self._t = 0
        return self._seen, {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        """Show the noise again."""
        self._t += 1
        return self._seen, 1.0, False, self._t >= 200, {}


def loop_row(
    size: str, space: Any, *, bf16: bool, device: str = "cuda", steps: int = 50
) -> dict[str, Any]:
    """Times of gradient steps with and without drawing, and of acting in 16 environments."""
    agent = sw.DreamerV3(
        partial(Noise, space),
        preset=size,
        device=device,
        buffer="device",
        n_envs=16,
        buffer_size=20_000,
        cuda_graph=device == "cuda",
        bf16=bf16,
        train_ratio=1e-6,
        seed=0,
    )
    agent.train(16 * (agent.config.sequence_length + 2) * 2)
    agent.learn(10)
    batch = agent.loop.sample()
    player = agent.player(16, deterministic=False)
    obs = np.stack([space.sample() for _ in range(16)])
    never = np.zeros(16, np.bool_)
    player.act(obs, never)

    def milliseconds(call: Any, times: int) -> float:
        synchronize = torch.cuda.synchronize if device == "cuda" else int
        synchronize()
        began = time.perf_counter()
        call(times)
        synchronize()
        return 1000 * (time.perf_counter() - began) / times

    def updates(times: int) -> None:
        for _ in range(times):
            agent.learner.update(batch)

    def acts(times: int) -> None:
        for _ in range(times):
            player.act(obs, never)

    whole = float(np.median([milliseconds(agent.learn, steps) for _ in range(3)]))
    bare = float(np.median([milliseconds(updates, steps) for _ in range(3)]))
    return {
        "step_ms": whole,
        "update_ms": bare,
        "host_share": 1.0 - bare / whole,
        "act_ms": milliseconds(acts, steps),
    }


def measure(name: str, rounds: int, *, bf16: bool) -> dict[str, Any]:
    """Medians over rounds in which all ways take turns."""
    size, space = CASES[name]
    kinds = {"ours": (False, False), "ours graph": (False, True), "plain graph": (True, True)}
    if size in ("size12m", "size1m"):
        kinds["plain"] = (True, False)
    ways = {k: Way(size, space, is_plain=p, is_graph=g, bf16=bf16) for k, (p, g) in kinds.items()}
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
    parser.add_argument(
        "--bf16", action="store_true", help="encoder, decoder and heads in bfloat16"
    )
    parser.add_argument("--no-loop", action="store_true", help="leave drawing and acting out")
    parsed = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    rows = []
    for name in parsed.cases:
        rows.append({"bf16": parsed.bf16, **measure(name, parsed.rounds, bf16=parsed.bf16)})
        if not parsed.no_loop:
            size, space = CASES[name]
            rows[-1]["loop"] = loop_row(size, space, bf16=parsed.bf16)
        print(json.dumps(rows[-1]), flush=True)
        torch.cuda.empty_cache()
        if parsed.out is not None:
            parsed.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
