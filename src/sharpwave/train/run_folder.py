"""The folder of a run: where its files lie, and what they say."""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpwave.files import read_json, read_json_lines

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation of a run."""

    step: int
    """Environment steps before it."""
    mean: float
    """Mean return."""
    std: float
    """Standard deviation of the returns."""
    mean_length: float
    """Mean episode length."""
    returns: tuple[float, ...]
    """Return of every episode."""


class RunFolder:
    """A run on disk. Reading forgives missing files and what a crash left half written.

    Args:
        path: The folder; it need not exist.

    Example:
        >>> folder = RunFolder("runs/none")
        >>> folder.exists, folder.metrics(), folder.evaluations()
        (False, {}, [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.environment_file = self.path / "environment.json"
        self.metrics_csv = self.path / "metrics.csv"
        self.metrics_jsonl = self.path / "metrics.jsonl"
        self.evaluations_file = self.path / "evaluations.jsonl"
        self.summary_file = self.path / "summary.json"
        self.report_file = self.path / "report.html"
        self.learning_curve_file = self.path / "learning_curve.png"
        self.checkpoints = self.path / "checkpoints"
        self.latest_checkpoint = self.checkpoints / "latest.safetensors"
        self.best_checkpoint = self.checkpoints / "best.safetensors"
        self.videos = self.path / "videos"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def exists(self) -> bool:
        """Whether a run has written here."""
        written = (self.config_file, self.metrics_csv, self.metrics_jsonl, self.summary_file)
        return any(file.exists() for file in written) or self.latest_checkpoint.exists()

    @property
    def config(self) -> dict[str, Any]:
        """Algorithm, environment, seed and configuration."""
        return read_json(self.config_file)

    @property
    def environment(self) -> dict[str, Any]:
        """Versions, machine, command line and git state."""
        return read_json(self.environment_file)

    @property
    def summary(self) -> dict[str, Any]:
        """How the run went, as far as it was written down."""
        return read_json(self.summary_file)

    def metrics(self) -> dict[str, Floats]:
        """Every metric as a column [n_rows], NaN where none was logged, `step` ascending.

        Rows of one step are one row; the last one written wins.
        """
        rows: dict[float, dict[str, float]] = {}
        for row in map(_numbers, self._metric_rows()):
            if "step" in row:
                rows.setdefault(row["step"], {}).update(row)
        ordered = [rows[step] for step in sorted(rows)]
        names = dict.fromkeys(name for row in ordered for name in row)
        return {name: np.array([row.get(name, np.nan) for row in ordered]) for name in names}

    def evaluations(self) -> list[Evaluation]:
        """All evaluations by step; the last one written wins where a step has several."""
        found = {}
        for row in read_json_lines(self.evaluations_file):
            evaluation = _evaluation(row)
            if evaluation is not None:
                found[evaluation.step] = evaluation
        return [found[step] for step in sorted(found)]

    def _metric_rows(self) -> Iterator[Mapping[str, Any]]:
        if self.metrics_jsonl.exists():
            yield from read_json_lines(self.metrics_jsonl)
        elif self.metrics_csv.exists():
            with self.metrics_csv.open(newline="", encoding="utf-8", errors="replace") as file:
                yield from csv.DictReader(file)


def new_run_dir(
    algorithm: str,
    env_id: str | None = None,
    seed: int | None = None,
    *,
    root: str | os.PathLike[str] = "runs",
) -> Path:
    """Makes an empty folder for a run, named by time, algorithm, environment and seed.

    Names sort by time; a number is added when two runs would get the same one.

    Args:
        algorithm: Name of the algorithm.
        env_id: Name of the environment, if it has one.
        seed: Seed of the run, if it has one.
        root: The folder of all runs.

    Returns:
        Such as runs/2026-05-01_14-03-22_ppo_CartPole-v1_seed42.
    """
    given = [algorithm, env_id, None if seed is None else f"seed{seed}"]
    words = [re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.") for word in given if word]
    name = "_".join([time.strftime("%Y-%m-%d_%H-%M-%S"), *filter(None, words)])
    attempt = 1
    while True:
        path = Path(root) / (name if attempt == 1 else f"{name}_{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            attempt += 1
        else:
            return path


def _number(value: Any) -> float:
    """A float, NaN for what is none."""
    if isinstance(value, bool):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row; what is text, missing, NaN or torn is left out."""
    numbers = {}
    for name, value in row.items():
        # Most values are floats, of files with millions of them.
        number = value if type(value) is float else _number(value)
        if number == number:
            numbers[name] = number
    return numbers


def _evaluation(row: Mapping[str, Any]) -> Evaluation | None:
    step, mean = _number(row.get("step")), _number(row.get("mean"))
    if not np.isfinite([step, mean]).all():
        return None
    returns = row.get("returns")
    listed = [_number(value) for value in returns] if isinstance(returns, list) else []
    return Evaluation(
        step=int(step),
        mean=mean,
        std=_number(row.get("std")),
        mean_length=_number(row.get("mean_length")),
        returns=tuple(value for value in listed if np.isfinite(value)),
    )
