"""The folder of a run: where its files lie, and what they say."""

from __future__ import annotations

import contextlib
import csv
import errno
import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.storage.checkpoints import torn_parts
from sharpwave.storage.files import make_folder, read_json, read_json_lines
from sharpwave.types import Doubles

FORMAT = "sharpwave run"
RETURN = "mean_return"
EARLIER_RETURN = "mean_reward"
"""The name of `mean_return` in runs of earlier versions."""
"""The "format" in `config.json` by which the folder of a run is recognized."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One evaluation of a run."""

    step: int
    """Steps before it: of the environments, or of the gradient in offline runs."""
    mean: float
    """Mean return."""
    std: float
    """Standard deviation of the returns."""
    mean_length: float
    """Mean episode length."""
    returns: tuple[float, ...]
    """Return of every episode."""
    success_rate: float | None = None
    """Share of the episodes that reached their goal; None where the environment does not say."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """Mean return of each of several agents; empty for one."""


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
        self.episodes_file = self.path / "episodes.csv"
        self.evaluations_file = self.path / "evaluations.jsonl"
        self.samples_file = self.path / "samples.jsonl"
        self.dreams_file = self.path / "dreams.jsonl"
        self.summary_file = self.path / "summary.json"
        self.report_file = self.path / "report.html"
        self.learning_curve_file = self.path / "learning_curve.png"
        self.checkpoints = self.path / "checkpoints"
        self.latest_checkpoint = self.checkpoints / "latest.safetensors"
        self.best_checkpoint = self.checkpoints / "best.safetensors"
        self.videos = self.path / "videos"
        self.replay = self.path / "replay"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def kept_checkpoint(self) -> Path:
        """Path of the best checkpoint if the run was evaluated, or else of the latest."""
        return self.best_checkpoint if self.best_checkpoint.is_file() else self.latest_checkpoint

    @property
    def is_ours(self) -> bool:
        """True if this is the folder of a run, by its `config.json`."""
        return self.config.get("format") == FORMAT

    @property
    def files(self) -> list[Path]:
        """The files that a run writes beside its folders."""
        return [
            self.config_file,
            self.environment_file,
            self.metrics_csv,
            self.metrics_jsonl,
            self.episodes_file,
            self.evaluations_file,
            self.samples_file,
            self.dreams_file,
            self.summary_file,
            self.report_file,
            self.learning_curve_file,
        ]

    def taken(self) -> list[str]:
        """Names of files and folders here that a run would write to."""
        folders = [self.checkpoints, self.videos, self.replay]
        found = [file.name for file in self.files if os.path.lexists(file)]
        return found + [one.name for one in folders if one.is_dir() and any(one.iterdir())]

    def torn(self) -> list[Path]:
        """Temporary files, and parts of checkpoints, that a kill left while they were written."""
        found = [left for file in self.files for left in self.path.glob(f".{file.name}.*.tmp")]
        found += self.checkpoints.glob(".*.safetensors.*.tmp")
        return found + torn_parts(self.checkpoints)

    def claim(self) -> None:
        """Make the folder that of a run. Other files in it are never touched.

        Raises:
            FileExistsError: Something is here under a name that a run writes to; another process
                may have been faster.
        """
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it must be a folder", str(self.path))
        make_folder(self.path)
        taken = self.taken()
        if taken:
            reason = f"it must be free for a run, and has {', '.join(taken)}"
            raise FileExistsError(errno.EEXIST, reason, str(self.path))
        with self.config_file.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"format": FORMAT}) + "\n")

    @property
    def exists(self) -> bool:
        """True if a run has written here."""
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
        """Outcome of the run, such as its steps and scores; empty before it is written."""
        return read_json(self.summary_file)

    def metrics(self) -> dict[str, Doubles]:
        """Every metric as a column [n_rows], `step` ascending.

        NaN stands where nothing was logged, inf where what was logged was not finite.

        Rows of one step are one row; the last one written wins. Mean returns have the
        name that they have today, whatever they were called when the run was made.
        """
        rows: dict[float, dict[str, float]] = {}
        name_of = self._name_of()
        for row in map(_numbers, self._metric_rows()):
            if "step" in row:
                today = {name_of(name): value for name, value in row.items()}
                rows.setdefault(row["step"], {}).update(today)
        ordered = [rows[step] for step in sorted(rows)]
        names = dict.fromkeys(name for row in ordered for name in row)
        return {name: np.array([row.get(name, np.nan) for row in ordered]) for name in names}

    def _name_of(self) -> Callable[[str], str]:
        """The name of a metric today: mean returns had another, which other runs still use."""
        headline = self.config.get("headline")
        if isinstance(headline, dict) and (
            headline.get("title") or headline.get("metric") not in (RETURN, EARLIER_RETURN)
        ):
            return str
        earlier = re.compile(rf"{EARLIER_RETURN}(?=/|$)")
        return lambda name: earlier.sub(RETURN, name)

    def evaluations(self) -> list[Evaluation]:
        """All evaluations by step; the last one written wins where a step has several."""
        found = {}
        for row in read_json_lines(self.evaluations_file):
            evaluation = _evaluation(row)
            if evaluation is not None:
                found[evaluation.step] = evaluation
        return [found[step] for step in sorted(found)]

    def episodes(self) -> dict[str, Doubles]:
        """The episodes of training as columns: `r`, `l`, `t`, `step` and `episode`.

        Return, length, seconds since the run began, steps of the run, and the episode's number.
        """
        if not self.episodes_file.exists():
            return {}
        with self.episodes_file.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = list(csv.DictReader(file, restval=""))
        names = list(rows[0]) if rows else []
        whole = [row for row in rows if "" not in row.values()]  # a torn line says nothing
        return {name: np.array([_number(row[name]) for row in whole]) for name in names}

    def samples(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Completions of a language model: rows by their rank ("best", "worst"), by step.

        The last one written wins where a step has several of a rank.
        """
        found: dict[int, dict[str, dict[str, Any]]] = {}
        for row in read_json_lines(self.samples_file):
            step, rank = _number(row.get("step")), row.get("rank")
            if np.isfinite(step) and isinstance(rank, str):
                found.setdefault(int(step), {})[rank] = dict(row)
        return {step: found[step] for step in sorted(found)}

    def dreams(self) -> dict[int, dict[str, Any]]:
        """Predictions of a world model, by step; the last one written wins."""
        found = {}
        for row in read_json_lines(self.dreams_file):
            step = _number(row.get("step"))
            if np.isfinite(step):
                found[int(step)] = dict(row)
        return {step: found[step] for step in sorted(found)}

    def _metric_rows(self) -> Iterator[Mapping[str, Any]]:
        if self.metrics_jsonl.exists():
            yield from read_json_lines(self.metrics_jsonl)
        elif self.metrics_csv.exists():
            with self.metrics_csv.open(newline="", encoding="utf-8", errors="replace") as file:
                yield from csv.DictReader(file, restval="")  # a torn line says nothing


def claim_numbered(path: str | os.PathLike[str]) -> RunFolder:
    """The folder of a new run: `path`, or `path-2`, `path-3`, ... where that is taken."""
    named = Path(path) if Path(path).name else Path(path).absolute()
    for number in itertools.count(1):
        folder = RunFolder(path if number == 1 else named.with_name(f"{named.name}-{number}"))
        with contextlib.suppress(FileExistsError):
            folder.claim()
            break
    return folder


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


def step_of(line: str) -> float:
    """The step of a line of JSON; infinity where it has none."""
    try:
        step = _number(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return np.inf
    return step if np.isfinite(step) else np.inf


def _number(value: Any) -> float:
    """A float, NaN for what is none."""
    if isinstance(value, bool):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row, inf for those that are not finite; what is text or torn is left out."""
    numbers = {}
    for name, value in row.items():
        # Most values are floats, of files with millions of them.
        number = value if type(value) is float else _number(value)
        if number == number:
            numbers[name] = number
        elif value is None or type(value) is float or str(value).lower() == "nan":
            numbers[name] = math.inf
    return numbers


def _evaluation(row: Mapping[str, Any]) -> Evaluation | None:
    step, mean = _number(row.get("step")), _number(row.get("mean"))
    if not np.isfinite([step, mean]).all():
        return None
    returns = row.get("returns")
    success_rate = _number(row.get("success_rate"))
    listed = [_number(value) for value in returns] if isinstance(returns, list) else []
    return Evaluation(
        step=int(step),
        mean=mean,
        std=_number(row.get("std")),
        mean_length=_number(row.get("mean_length")),
        returns=tuple(value for value in listed if np.isfinite(value)),
        success_rate=success_rate if np.isfinite(success_rate) else None,
        agents=_agents(row.get("agents")),
    )


def _agents(returns: Any) -> dict[str, float]:
    """The mean return of each agent, of those whose returns are numbers."""
    if not isinstance(returns, Mapping):
        return {}
    listed = {
        str(name): [_number(value) for value in values]
        for name, values in returns.items()
        if isinstance(values, list) and values
    }
    means = {name: float(np.mean(values)) for name, values in listed.items()}
    return {name: mean for name, mean in means.items() if np.isfinite(mean)}
