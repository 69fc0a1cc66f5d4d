"""The files of a folder: how large they are, who writes them, and what is damaged."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpwave.pages.viewer.source import Column
from sharpwave.pages.viewer.survey import Survey
from sharpwave.storage.folder import writer_of

_CHUNK = re.compile(r"(.+)\.\d{12,}(\.coded)?")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Condition of the files of a folder.

    Attributes:
        writer: The process that writes, None when nobody does.
        bytes: Size of all files on disk.
        files: Bytes on disk by what the names of the files of a column begin with.
        damage: Damage, in words.
        verified: The checksums were compared.
    """

    writer: int | None
    bytes: int
    files: dict[str, int]
    damage: tuple[str, ...] = ()
    verified: bool = False

    def bytes_of(self, column: Column) -> int | None:
        """Bytes on disk of a field, None when it shares its files."""
        return None if column.files is None else self.files.get(column.files, 0)

    def to_json(self) -> dict[str, Any]:
        """The values in a form that JSON can hold."""
        return {
            "writer": self.writer,
            "bytes": self.bytes,
            "damage": list(self.damage),
            "verified": self.verified,
        }


def look(survey: Survey, *, before: Condition | None = None, verify: bool = False) -> Condition:
    """Look at the files of a folder.

    Args:
        survey: What was read; fields that could not be read are damage.
        before: What was known: its damage stays said.
        verify: Compare the checksums of all files.
    """
    about = survey.source.about
    total, files = sizes(about.path)
    damage = list(before.damage) if before is not None else []
    damage += survey.source.damage(verify=verify)
    damage += [f"{name}: {why}" for name, why in survey.unreadable.items()]
    return Condition(
        writer=writer_of(about.path) or None,
        bytes=total,
        files=files,
        damage=tuple(dict.fromkeys(damage)),
        verified=verify or (before is not None and before.verified),
    )


def sizes(folder: Path) -> tuple[int, dict[str, int]]:
    """Bytes on disk of all files below a folder, and of those of each column.

    Files that a writer made longer than they are full count with the space they take.
    """
    total, by_column = 0, dict[str, int]()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                taken = (Path(parent) / name).stat().st_blocks * 512
            except FileNotFoundError:  # the writer let it go in between
                continue
            total += taken
            chunk = _CHUNK.fullmatch(name)
            if chunk is not None and Path(parent) == folder / "columns":
                by_column[chunk[1]] = by_column.get(chunk[1], 0) + taken
    return total, by_column
