"""Metrics for Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharpwave.core.optional import require
from sharpwave.pages.samples import as_text
from sharpwave.runs.loggers.base import Metrics, Sample, numbers
from sharpwave.runs.loggers.periodic import IntervalLogger

TEXTS = ("prompt", "completion")
NUMBERS = ("reward", "advantage", "length", "finished")
"""Columns of the table of samples."""


class WandbLogger(IntervalLogger):
    """Metrics `train/...` and `eval/...` of one run of Weights & Biases, over `step`.

    What a language model wrote is the table `samples`, with all completions of an update.

    The run begins with the first number. After `close` the same run is taken up again; to take it
    up from another process, pass its `id`.

    Args:
        project: The project.
        log_interval: Steps between two updates to send; 0 sends all, and None leaves it to what a
            step is: 1000 of environments and gradients, each update of language models.
        **init: Further arguments of `wandb.init`, e.g. `mode="offline"`, `name`, `id`, `config`.

    Attributes:
        run: The run, None before the first number and after `close`.

    Raises:
        ImportError: If `wandb` is not installed.
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.

    Example:
        >>> agent = sw.PPO("CartPole-v1", logger=WandbLogger("cartpole", mode="offline"))
    """

    def __init__(
        self, project: str = "sharpwave", *, log_interval: int | None = None, **init: Any
    ) -> None:
        super().__init__(log_interval)
        self._wandb = require("wandb", extra="wandb")
        self._init = {"project": project, "resume": "allow", **init}
        self.run: Any = None

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Adds the configuration to the run's."""
        self._open().config.update(dict(config), allow_val_change=True)

    def write(self, step: int, metrics: Metrics) -> None:
        """Sends the metrics of an update."""
        self._open().log({"step": step, **numbers("train", metrics)})

    def write_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Sends all completions of an update as a table."""
        # Written out, since the service cannot take half a character, as a tokenizer may give.
        text = {name: [_encodable(as_text(row[name])) for row in rows] for name in TEXTS}
        columns = text | {name: [row[name] for row in rows] for name in NUMBERS}
        for name in rows[0].get("rewards", {}) if len(rows) else ():
            columns[f"reward_{name}"] = [row["rewards"][name] for row in rows]
        data = [list(row) for row in zip(*columns.values(), strict=True)]
        table = self._wandb.Table(columns=list(columns), data=data)
        self._open().log({"step": step, "samples": table})

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Sends the statistics of an evaluation."""
        self._open().log({"step": step, **numbers("eval", metrics)})

    def close(self) -> None:
        """Sends what is pending and ends the run."""
        super().close()
        if self.run is not None:
            self._init["id"] = self.run.id
            self.run.finish()
            self.run = None

    def _open(self) -> Any:
        if self.run is None:
            self.run = self._wandb.init(**self._init)
            # A step of its own: the service's counter may not go back, as a resumed run does.
            self.run.define_metric("step")
            self.run.define_metric("*", step_metric="step")
        return self.run


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
