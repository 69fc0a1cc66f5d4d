"""Metrics as one JSON object per line."""

from __future__ import annotations

import json
import math
from pathlib import Path

from sharpwave.runs.loggers.base import LoggerCallback, Metrics, Plain, plain
from sharpwave.runs.loggers.row_file import RowFile


class JSONLLogger(LoggerCallback):
    """One object per update and per evaluation, with the key `step` first.

    Nan and infinity become null. Every line is written at once, so a killed run loses at most its
    last; a resumed one goes on in the same file.

    Args:
        path: The file; it and its folder are made when the first line is.

    Raises:
        ValueError: When it is truncated, if the file is not such a log.

    Example:
        >>> logger = JSONLLogger("metrics.jsonl")
        >>> logger.on_train_step(2048, {"loss": 0.5})
        >>> logger.close()
    """

    def __init__(self, path: str | Path) -> None:
        self._file = RowFile(path)

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Adds a line."""
        self._append({"step": step} | plain(metrics))

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Adds a line."""
        self._append({"step": step} | plain(metrics))

    def truncate_after(self, step: int) -> None:
        """Cuts the lines beyond a step."""
        self._file.cut(lambda line: self._step(line) <= step)

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _append(self, row: dict[str, Plain]) -> None:
        self._file.append(json.dumps({name: _finite(value) for name, value in row.items()}))

    def _step(self, line: str) -> int:
        try:
            return int(json.loads(line)["step"])
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"{self._file.path} must hold one object with a step per line, got {line[:80]!r}"
            ) from None


def _finite(value: Plain) -> Plain:
    return None if isinstance(value, float) and not math.isfinite(value) else value
