"""Policies of a run, each kept when it was the best so far."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sharpwave.runs.callbacks import Callback
from sharpwave.storage.files import read_json, write_json

__all__ = ["Improvement", "Improvements", "read_improvements"]

FILE = "improvements.json"


@dataclass(frozen=True)
class Improvement:
    """A policy that evaluated better than all before it."""

    step: int
    """Environment steps before it."""
    mean: float
    """The mean return of its evaluation."""
    n_episodes: int
    """Episodes that training had recorded by then."""

    def path(self, folder: Path) -> Path:
        """Its checkpoint."""
        return folder / f"step_{self.step}.safetensors"


class Improvements(Callback):
    """Saves a checkpoint whenever an evaluation is the best so far.

    The first policy that reached some return is always among them, whatever the return: nobody
    needs to know beforehand which one will be asked for.

    Args:
        folder: Folder of the checkpoints and `improvements.json`.
        episodes: Recorder of the training, to count its episodes.
    """

    def __init__(self, folder: str | os.PathLike[str], episodes: Any) -> None:
        self._folder = Path(folder)
        self._episodes = episodes
        self._found: list[Improvement] = []

    def on_training_start(self, *, step: int, **_: Any) -> None:
        """Goes on after those that an earlier attempt found up to this step."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = [one for one in read_improvements(self._folder) if one.step <= step]

    def on_eval(self, *, algo: Any, step: int, result: Any, **_: Any) -> None:
        """Keeps the policy if it is the best."""
        best = self._found[-1].mean if self._found else -math.inf
        if result.mean > best:
            found = Improvement(step, float(result.mean), self._episodes.num_episodes)
            algo.save(found.path(self._folder))
            self._found.append(found)
            rows = [asdict(one) for one in self._found]
            write_json(self._folder / FILE, {"improvements": rows})


def read_improvements(folder: str | os.PathLike[str]) -> list[Improvement]:
    """The policies that `Improvements` found, worst first."""
    rows = read_json(Path(folder) / FILE).get("improvements", [])
    return [Improvement(**row) for row in rows]
