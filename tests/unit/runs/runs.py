"""Run folders as a recorder leaves them, without the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.storage.run_folder import FORMAT


def rows(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Metrics of n updates that learn something."""
    rng = np.random.default_rng(seed)
    return [
        {
            "step": 256 * (i + 1),
            "mean_return": 500 * (1 - 0.99**i) + float(rng.normal()),
            "policy_loss": float(rng.normal(scale=0.01)),
            "value_loss": float(rng.exponential()),
            "entropy": 0.7 * 0.99**i,
            "approx_kl": float(rng.exponential(0.01)),
            "clip_fraction": float(rng.uniform(0, 0.2)),
            "explained_variance": 1 - 0.99**i,
            "learning_rate": 1e-3 * (1 - i / max(n, 1)),
            "updates": i + 1,
            "seconds": 0.2 * (i + 1),
        }
        for i in range(n)
    ]


def evaluations(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """n evaluations of five episodes."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        returns = rng.normal(50 * i + 10 * seed, 5, size=5)
        found.append(
            {
                "step": 2560 * (i + 1),
                "mean": float(returns.mean()),
                "std": float(returns.std()),
                "mean_length": 100.0,
                "returns": returns.tolist(),
            }
        )
    return found


def write_lines(path: Path, objects: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in objects))


def write_run(path: Path, n_updates: int = 100, n_evaluations: int = 5, **config: Any) -> Path:
    """A finished run; `config` replaces what config.json says."""
    path.mkdir(parents=True)
    told: dict[str, Any] = {
        "format": FORMAT,
        "algorithm": "ppo",
        "env": "CartPole-v1",
        "seed": 0,
        "config": {"gamma": 0.99},
    }
    told |= config
    write_lines(path / "metrics.jsonl", rows(n_updates, told["seed"]))
    write_lines(path / "evaluations.jsonl", evaluations(n_evaluations, told["seed"]))
    (path / "config.json").write_text(json.dumps(told | {"changed": ["gamma"]}))
    git = {"commit": "0123456789abcdef", "branch": "main", "dirty": True, "diff_stat": " a | 2 +-"}
    environment = {"started": "2026-05-01T14:03:22+00:00", "argv": ["train.py"], "git": git}
    (path / "environment.json").write_text(json.dumps(environment))
    summary = {
        "status": "finished",
        "timesteps": 256 * n_updates,
        "updates": n_updates,
        "wall_seconds": 20.0,
        "timings": {"env": 8.0, "act": 4.0, "advantages": 0.1, "update": 6.0, "callbacks": 1.0},
    }
    (path / "summary.json").write_text(json.dumps(summary))
    return path
