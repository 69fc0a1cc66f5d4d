"""Run folders that are read again and again while runs write to them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.pages.curves import thinned
from sharpwave.pages.report.told import headline_of, subject_of, unit_of
from sharpwave.storage.run_folder import RunFolder
from sharpwave.types import Doubles

__all__ = ["EVALUATED", "WatchedRuns"]

EVALUATED = "evaluation"
"""Name of the mean return of evaluations among the metrics."""
POINTS = 1000
"""Points of a curve; extremes are kept."""
SILENT = 120.0
"""Seconds after which a run that says nothing does not count as running."""
SHARE = 0.1
"""Share of the time that reading one run may take; longer runs are read less often."""
DEPTH = 6
"""Folders within folders that are searched for runs."""
_CLOSED = {"checkpoints", "videos", "replay"}
"""Folders of a run, in which there are no others."""

Signature = tuple[tuple[int, int, int], ...]


@dataclass(kw_only=True)
class _Run:
    """A run as it was when it was last read."""

    folder: RunFolder
    signature: Signature = ()
    version: int = 0
    """Number of times it was read."""
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, Doubles] = field(default_factory=dict)
    evaluated: tuple[Doubles, Doubles] = (np.zeros(0), np.zeros(0))
    """Steps and mean returns of evaluations."""
    rested_until: float = 0.0
    """Time before which it is not read again."""

    def refresh(self) -> None:
        """Read it again if its files have changed."""
        now = time.monotonic()
        signature = _signature(self.folder)
        if signature == self.signature or now < self.rested_until:
            return
        self.config, self.summary = self.folder.config, self.folder.summary
        self.columns = self.folder.metrics()
        evaluations = self.folder.evaluations()
        steps = np.array([float(one.step) for one in evaluations])
        self.evaluated = steps, np.array([one.mean for one in evaluations])
        self.signature, self.version = signature, self.version + 1
        self.rested_until = now + (time.monotonic() - now) / SHARE

    def curve(self, metric: str) -> tuple[Doubles, Doubles, Doubles]:
        """Steps, seconds and values [n] of a metric, where it is a finite number."""
        steps = self.columns.get("step", np.zeros(0))
        seconds = self.columns.get("seconds", np.full(len(steps), np.nan))
        if metric == EVALUATED:
            x, y = self.evaluated
            known = np.isfinite(seconds)
            at = np.interp(x, steps[known], seconds[known]) if known.any() else np.full(len(x), 0.0)
            return x, at, y
        y = self.columns.get(metric, np.full(len(steps), np.nan))
        kept = np.isfinite(y)
        return steps[kept], np.nan_to_num(seconds[kept]), y[kept]

    @property
    def metrics(self) -> list[str]:
        """Names of what there is a curve of."""
        axes = {"step", "seconds"}
        logged = [name for name, y in self.columns.items() if np.isfinite(y).any()]
        return [EVALUATED] * bool(len(self.evaluated[0])) + [n for n in logged if n not in axes]

    @property
    def state(self) -> str:
        """running, silent where a run that has not ended writes nothing, or how it ended."""
        said = str(self.summary.get("status", "running"))
        newest = max((changed for changed, _, _ in self.signature), default=0)
        is_silent = time.time() - newest / 1e9 > SILENT
        return "silent" if said == "running" and is_silent else said

    def listed(self, name: str) -> dict[str, Any]:
        """Facts of it that the page shows beside its curves."""
        headline = headline_of(self.config).metric
        steps, _, values = self.curve(headline)
        if not len(values):
            headline = EVALUATED
            steps, _, values = self.curve(headline)
        done = self.columns.get("step", steps)
        return {
            "id": name,
            "version": self.version,
            "algorithm": str(self.config.get("algorithm") or "run"),
            "subject": subject_of(self.config),
            "seed": self.config.get("seed"),
            "unit": unit_of(self.config),
            "state": self.state,
            "steps": float(done[-1]) if len(done) else None,
            "headline": headline,
            "value": float(values[-1]) if len(values) else None,
            "metrics": self.metrics,
            "options": _options(self.config.get("config")),
        }


class WatchedRuns:
    """All runs in a folder and below, as they are now, for several threads.

    Args:
        root: The folder; it may be that of one run, and runs may come and go.

    Example:
        >>> WatchedRuns("runs/none").listed()
        []
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def listed(self) -> list[dict[str, Any]]:
        """All runs by name, in values that JSON can hold."""
        with self._lock:
            self._find()
            for run in self._runs.values():
                with contextlib.suppress(OSError):  # it goes away while it is read
                    run.refresh()
            return [self._runs[name].listed(name) for name in sorted(self._runs)]

    def curve(self, name: str, metric: str) -> dict[str, Any]:
        """A curve of a run, of at most 1000 points that keep its shape.

        Raises:
            KeyError: There is no such run.
        """
        with self._lock:
            run = self._runs.get(name)
            if run is None:
                raise KeyError(f"there is no run {name!r}")
            steps, seconds, y = run.curve(metric)
            kept = thinned(y, POINTS)
            return {
                "version": run.version,
                "step": steps[kept].tolist(),
                "seconds": seconds[kept].tolist(),
                "y": y[kept].tolist(),
            }

    def _find(self) -> None:
        found = dict(_folders(self.root, {run.folder.path for run in self._runs.values()}))
        for name in self._runs.keys() - found.keys():
            del self._runs[name]
        for name, path in found.items():
            if name not in self._runs:
                self._runs[name] = _Run(folder=RunFolder(path))


def _folders(root: Path, known: Set[Path]) -> Iterator[tuple[str, Path]]:
    """Folders of runs, and their names; the configurations of known ones are not read again."""
    for path, folders, files in os.walk(root):
        here = Path(path)
        depth = len(here.relative_to(root).parts)
        if "config.json" in files and (here in known or RunFolder(here).is_ours):
            yield here.relative_to(root).as_posix() if depth else here.resolve().name, here
            folders[:] = [one for one in folders if one not in _CLOSED]
        folders[:] = [one for one in folders if not one.startswith(".")] if depth < DEPTH else []


def _signature(folder: RunFolder) -> Signature:
    """Time, size and number of the files that are read."""
    found = []
    for file in (
        folder.config_file,
        folder.metrics_csv,
        folder.metrics_jsonl,
        folder.evaluations_file,
        folder.summary_file,
    ):
        with contextlib.suppress(FileNotFoundError):
            status = file.stat()
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _options(config: Any, prefix: str = "") -> dict[str, str]:
    """Options by dotted name, as text."""
    options: dict[str, str] = {}
    for name, value in config.items() if isinstance(config, Mapping) else ():
        if isinstance(value, Mapping):
            options |= _options(value, f"{prefix}{name}.")
        else:
            options[f"{prefix}{name}"] = str(value)
    return options
