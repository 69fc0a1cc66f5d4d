"""Metrics in a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from sharpwave.runs.loggers.base import LoggerCallback, Metrics, Plain, plain
from sharpwave.runs.loggers.row_file import RowFile


class CSVLogger(LoggerCallback):
    """One row per update and per evaluation, with the column `step` first.

    A metric that appears later gets a new column, empty in the rows before it. Every row is written
    at once, so a killed run loses at most its last; a resumed one goes on in the same file.

    Args:
        path: The file; it and its folder are made when the first row is.

    Raises:
        ValueError: When it is first used, if the file is not such a log.

    Example:
        >>> logger = CSVLogger("metrics.csv")
        >>> logger.on_train_step(2048, {"loss": 0.5})
        >>> logger.close()
    """

    def __init__(self, path: str | Path) -> None:
        self._file = RowFile(path)
        self._columns: list[str] = []

    def on_train_step(self, step: int, metrics: Metrics) -> None:
        """Adds a row."""
        self._append({"step": step} | plain(metrics))

    def on_eval(self, step: int, metrics: Metrics) -> None:
        """Adds a row."""
        self._append({"step": step} | plain(metrics))

    def truncate_after(self, step: int) -> None:
        """Cuts the rows beyond a step; with no row left the columns go too."""
        if not self._known_columns():
            return
        header = _line(self._columns)
        self._file.cut(lambda line: line == header or int(line.split(",", 1)[0]) <= step)
        if len(self._file.lines()) == 1:
            self._file.cut(lambda _: False)
            self._columns = []

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()
        self._columns = []

    def _append(self, row: dict[str, Plain]) -> None:
        columns = self._known_columns()
        new = [name for name in row if name not in columns]
        if new:
            rows = self._rows() if columns else []
            self._columns = columns + new
            self._write_all(rows)
        self._file.append(_line(row.get(name, "") for name in self._columns))

    def _known_columns(self) -> list[str]:
        """The columns of the file, read from it once."""
        if not self._columns and (lines := self._file.lines()):
            self._columns = next(csv.reader(lines[:1]))
            if self._columns[:1] != ["step"]:
                raise ValueError(
                    f"{self._file.path} must be a log that begins with the column step, "
                    f"got {lines[0][:80]!r}"
                )
        return self._columns

    def _rows(self) -> list[list[str]]:
        return list(csv.reader(self._file.lines()[1:]))

    def _write_all(self, rows: list[list[str]]) -> None:
        width = len(self._columns)
        padded = (row + [""] * (width - len(row)) for row in rows)
        self._file.rewrite([_line(row) for row in [self._columns, *padded]])


def _line(values: Iterable[Plain]) -> str:
    return ",".join(map(_cell, values))


def _cell(value: Plain) -> str:
    text = "" if value is None else str(value).replace("\n", " ")
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text
