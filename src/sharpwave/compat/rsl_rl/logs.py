"""Logs of training as rsl_rl writes them: the console, and TensorBoard by its names."""

from __future__ import annotations

import datetime
import math
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from sharpwave.compat.rsl_rl.refusals import refuse
from sharpwave.compat.rsl_rl.settings import Settings, resolved
from sharpwave.core.optional import require

__all__ = ["Iteration", "Logs"]

WIDTH, LEFT = 80, 40
"""Characters of a line of the console, and of its left half."""
NAMES = {
    "value_loss": "value",
    "policy_loss": "surrogate",
    "entropy": "entropy",
    "curiosity_loss": "rnd",
    "mirror_loss": "symmetry",
    "behavior_loss": "behavior",
}
"""Metrics of learners, and what rsl_rl calls them."""
FACTORS = {"value_loss": 2.0}
"""rsl_rl's value loss is without the ½."""


class Iteration:
    """Numbers of one iteration.

    Args:
        number: Of the iteration, from 0 on.
        metrics: Of the agent.
        std: Mean standard deviation of actions.
        collected: Seconds of the rollout.
        learned: Seconds of the rest.
        steps: Steps of all environments.
        told: What environments asked to be logged, a dict for each step.
    """

    def __init__(
        self,
        number: int,
        metrics: Mapping[str, float],
        *,
        std: float,
        collected: float,
        learned: float,
        steps: int,
        told: Iterable[Mapping[str, Any]],
    ) -> None:
        self.number = number
        self.std = std
        self.collected = collected
        self.learned = learned
        self.steps = steps
        self.told = means(told)
        self.losses = {
            theirs: metrics[ours] * FACTORS.get(ours, 1.0)
            for ours, theirs in NAMES.items()
            if ours in metrics
        }
        self.learning_rate = metrics["learning_rate"]
        reward, length = metrics["mean_return"], metrics["mean_length"]
        self.episodes: dict[str, float] = {}
        if not math.isnan(reward):
            intrinsic = metrics.get("mean_intrinsic_return", 0.0)
            self.episodes = {"reward": reward + intrinsic, "episode_length": length}
            if "curiosity_weight" in metrics:
                self.episodes |= {"extrinsic_reward": reward, "intrinsic_reward": intrinsic}
        self.curiosity_weight = metrics.get("curiosity_weight")

    @property
    def fps(self) -> int:
        """Steps per second."""
        return int(self.steps / (self.collected + self.learned))

    def scalars(self, form: int) -> dict[str, float]:
        """The numbers by the names that a version of rsl_rl has for them."""
        losses = dict(self.losses)
        if form < 4 and "value" in losses:
            losses["value_function"] = losses.pop("value")
        spread = "mean_std" if form >= 5 else "mean_noise_std"
        found = {
            **{name if "/" in name else f"Episode/{name}": x for name, x in self.told.items()},
            **{f"Loss/{name}": x for name, x in losses.items()},
            "Loss/learning_rate": self.learning_rate,
            f"Policy/{spread}": self.std,
            "Perf/total_fps": self.fps,
            ("Perf/collection_time" if form >= 4 else "Perf/collection time"): self.collected,
            "Perf/learning_time": self.learned,
        }
        for name, x in self.episodes.items():
            room = "Rnd" if name.startswith(("ex", "in")) else "Train"
            found[f"{room}/mean_{name}"] = x
        if "intrinsic_reward" in self.episodes and self.curiosity_weight is not None:
            found["Rnd/weight"] = self.curiosity_weight
        return found


def means(told: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each number over all that have it; tensors count with all of their elements."""
    values: dict[str, list[torch.Tensor]] = {}
    for one in told:
        for name, x in one.items():
            row = torch.as_tensor(x).detach().float().reshape(-1)
            values.setdefault(name, []).append(row)
    joined = {
        name: torch.cat([x.to(rows[0].device) for x in rows]) for name, rows in values.items()
    }
    return {name: float(rows.mean()) for name, rows in joined.items() if len(rows)}


class Logs:
    """The console and a writer of scalars, in a folder.

    Args:
        folder: The folder; None logs nothing.
        settings: The configuration.

    Attributes:
        writer: TensorBoard's, or one of the user's, while there is one.
        repositories: Files of git repositories whose state is written into the folder.
    """

    def __init__(self, folder: str | None, settings: Settings) -> None:
        self.folder = None if folder is None else Path(folder)
        self.writer: Any = None
        self.repositories: list[str] = []
        self._settings = settings
        self._steps, self._seconds = 0, 0.0
        if settings.logger not in ("tensorboard", None) and not isinstance(
            settings.logger, Mapping
        ):
            theirs = {"class_name": "rsl_rl.utils:WandbLogWriter", "project_name": "..."}
            raise refuse("logger", settings.logger, f"'tensorboard' or a dict such as {theirs}")

    def begin(self) -> None:
        """Open the writer, and write what state the repositories are in."""
        if self.folder is None or self.writer is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.writer = self._open()
        for path in self.repositories:
            _write_git_state(Path(path), self.folder / "git")

    def _open(self) -> Any:
        logger = self._settings.logger
        if isinstance(logger, Mapping):
            options = dict(logger)
            kind = resolved(options.pop("class_name"), "logger.class_name")
            return kind(log_dir=str(self.folder), **options)
        module = require("torch.utils.tensorboard", extra="tensorboard")
        return module.SummaryWriter(log_dir=str(self.folder), flush_secs=10)

    def log(self, iteration: Iteration, first: int, end: int) -> None:
        """Log one of the iterations from `first` to before `end`."""
        self._steps += iteration.steps
        self._seconds += iteration.collected + iteration.learned
        if self.writer is None:
            return
        for name, x in iteration.scalars(self._settings.form).items():
            self.writer.add_scalar(name, x, iteration.number)
        for name in ("reward", "episode_length"):
            if name in iteration.episodes:
                x, seconds = iteration.episodes[name], int(self._seconds)
                self.writer.add_scalar(f"Train/mean_{name}/time", x, seconds)
        print(self._text(iteration, first, end))  # noqa: T201 - rsl_rl's users look for it

    def _text(self, iteration: Iteration, first: int, end: int) -> str:
        """The lines of the console."""
        done = iteration.number + 1 - first
        left = self._seconds / done * (end - first - done)
        name = self._settings.run_name
        rows = {
            **({"Run name": name} if name else {}),
            "Total steps": str(self._steps),
            "Steps per second": str(iteration.fps),
            "Collection time": f"{iteration.collected:.3f}s",
            "Learning time": f"{iteration.learned:.3f}s",
            **{f"Mean {x} loss": f"{loss:.4f}" for x, loss in iteration.losses.items()},
            **{
                f"Mean {x.replace('_', ' ')}": f"{mean:.2f}"
                for x, mean in iteration.episodes.items()
            },
            "Mean action std": f"{iteration.std:.2f}",
            **{
                (x if "/" in x else f"Mean episode {x}"): f"{mean:.4f}"
                for x, mean in iteration.told.items()
            },
        }
        last = {
            "Iteration time": f"{iteration.collected + iteration.learned:.2f}s",
            "Time elapsed": str(datetime.timedelta(seconds=int(self._seconds))),
            "ETA": str(datetime.timedelta(seconds=int(left))),
        }
        title = f" Learning iteration {iteration.number}/{end} ".center(WIDTH)
        parts = (("#" * WIDTH, title, ""), _lines(rows), ("-" * WIDTH,), _lines(last))
        return "\n".join(line for part in parts for line in part)

    def end(self) -> None:
        """Write out what is pending."""
        for name in ("flush", "stop"):
            if hasattr(self.writer, name):
                getattr(self.writer, name)()


def _lines(rows: Mapping[str, str]) -> list[str]:
    return [f"{f'{name}:':>{LEFT}} {text}" for name, text in rows.items()]


def _write_git_state(path: Path, folder: Path) -> None:
    """Write commit, status and changes of the repository that a file is in."""
    where = path if path.is_dir() else path.parent
    top = _git(where, "rev-parse", "--show-toplevel")
    if top is None:
        print(f"No git repository at {path}.")  # noqa: T201
        return
    target = folder / f"{Path(top.strip()).name}.diff"
    if target.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    asked = {"commit": ("rev-parse", "HEAD"), "status": ("status",), "diff": ("diff", "HEAD")}
    told = {name: _git(where, *arguments) or "" for name, arguments in asked.items()}
    text = "\n\n".join(f"--- git {name} ---\n{x}" for name, x in told.items())
    target.write_text(text, encoding="utf-8")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
