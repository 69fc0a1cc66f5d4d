"""Metrics for TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sharpwave.core.optional import require
from sharpwave.pages.samples import as_text, picked
from sharpwave.runs.loggers.base import Metrics, Sample, numbers
from sharpwave.runs.loggers.periodic import IntervalLogger


class TensorBoardLogger(IntervalLogger):
    """Scalars `train/...` and `eval/...` over the steps of the run, in TensorBoard's event files.

    What a language model wrote stands under `samples`, the best, median and worst of an update.
    Every update is written out at once. A resumed run goes on in the same folder, and TensorBoard
    drops what an earlier run wrote beyond the step that it resumes from.

    Args:
        log_dir: The folder, made when the first number comes.
        log_interval: Steps between two updates to write; 0 writes all, and None leaves it to what a
            step is: 1000 of environments and gradients, each update of language models.

    Raises:
        ImportError: If `tensorboard` is not installed.
        TypeError: If `log_interval` is not an integer.
        ValueError: If it is negative.

    Example:
        >>> agent = sw.PPO("CartPole-v1", logger=TensorBoardLogger("runs/cartpole"))
    """

    def __init__(self, log_dir: str | Path = "runs", *, log_interval: int | None = None) -> None:
        super().__init__(log_interval)
        self._folder = Path(log_dir)
        self._event = require("tensorboard.compat.proto.event_pb2", extra="tensorboard")
        self._summary = require("tensorboard.compat.proto.summary_pb2", extra="tensorboard")
        self._resumed_at = 0
        self._writer: Any = None

    def truncate_after(self, step: int) -> None:
        """Tells TensorBoard to drop what it has beyond a step."""
        super().truncate_after(step)
        self._resumed_at = step

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Writes the configuration as a text."""
        text = "```json\n" + json.dumps(dict(config), indent=2, default=str) + "\n```"
        self._add_text("config", self._resumed_at, text)

    def write_samples(self, step: int, rows: Sequence[Sample]) -> None:
        """Writes the best, the median and the worst completion as a text."""
        self._add_text("samples", step, "\n\n".join(_told(*one) for one in picked(rows).items()))

    def _add_text(self, name: str, step: int, text: str) -> None:
        tensor_pb2 = require("tensorboard.compat.proto.tensor_pb2", extra="tensorboard")
        types_pb2 = require("tensorboard.compat.proto.types_pb2", extra="tensorboard")
        content = text.encode(errors="backslashreplace")  # a tokenizer may give half a character
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[content])
        metadata = self._summary.SummaryMetadata(
            plugin_data=self._summary.SummaryMetadata.PluginData(plugin_name="text")
        )
        value = self._summary.Summary.Value(tag=name, metadata=metadata, tensor=tensor)
        self._add(step, [value])

    def write(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of an update."""
        self._add_scalars(step, numbers("train", metrics))

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Writes the statistics of an evaluation."""
        self._add_scalars(step, numbers("eval", metrics))

    def close(self) -> None:
        """Writes out what is pending and closes the event file."""
        super().close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _add_scalars(self, step: int, scalars: dict[str, float]) -> None:
        value = self._summary.Summary.Value
        self._add(step, [value(tag=tag, simple_value=scalar) for tag, scalar in scalars.items()])

    def _add(self, step: int, values: list[Any]) -> None:
        if self._writer is None:
            self._writer = self._open()
        self._writer.add_event(self._make_event(step, summary=self._summary.Summary(value=values)))
        self._writer.flush()

    def _open(self) -> Any:
        module = "tensorboard.summary.writer.event_file_writer"
        writer = require(module, extra="tensorboard").EventFileWriter(str(self._folder))
        if self._resumed_at:
            start = self._event.SessionLog(status=self._event.SessionLog.START)
            writer.add_event(self._make_event(self._resumed_at + 1, session_log=start))
        return writer

    def _make_event(self, step: int, **contents: Any) -> Any:
        return self._event.Event(wall_time=time.time(), step=step, **contents)


def _told(rank: str, row: Sample) -> str:
    """A completion in Markdown: as code, by indentation, which nothing in the text can end."""
    ended = "finished" if row["finished"] else "cut"
    texts = (as_text(row[name]).splitlines() or [""] for name in ("prompt", "completion"))
    prompt, completion = ("\n".join(f"    {line}" for line in lines) for lines in texts)
    return (
        f"**{rank}**: reward {row['reward']}, {row['length']} tokens, {ended}\n\n"
        f"prompt\n\n{prompt}\n\ncompletion\n\n{completion}"
    )
