"""A text file of rows that survives a kill at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO


class RowFile:
    """Lines that are appended one at a time, each handed to the system at once.

    A line that was cut by a kill has no line end and goes when the file is next opened.

    Args:
        path: The file. It and its folder are made when the first row is.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: IO[bytes] | None = None

    def append(self, line: str) -> None:
        """Adds a line, given without its end."""
        if self._file is None:
            self._file = self._open()
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def lines(self) -> list[str]:
        """The whole lines that are there."""
        if not self.path.exists():
            return []
        return self.path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]

    def cut(self, keep: Callable[[str], bool]) -> None:
        """Ends the file before the first line that is not to be kept, or is not whole."""
        self.close()
        if not self.path.exists():
            return
        with self.path.open("r+b") as file:
            end = 0
            for line in file:
                if not line.endswith(b"\n") or not keep(line[:-1].decode(errors="replace")):
                    break
                end += len(line)
            file.truncate(end)

    def rewrite(self, lines: list[str]) -> None:
        """Replaces all lines at once: a kill leaves the old ones or the new."""
        self.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as file:
            file.write("".join(line + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def close(self) -> None:
        """Lets go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.cut(lambda _: True)
        return self.path.open("ab")
