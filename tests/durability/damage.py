"""Ways to damage a file, and folders to damage."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TRAILER = 4096
"""Bytes at the end of a chunk file that describe its rows."""


@dataclass(frozen=True)
class Damage:
    """One way to damage one file.

    Attributes:
        file: Its path in the folder.
        cut: Bytes that are left of it, or None for all.
        flip: The bit that is flipped, or None for none. With neither the file is removed.
    """

    file: str
    cut: int | None = None
    flip: int | None = None

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        if self.cut is not None:
            with path.open("r+b") as file:
                file.truncate(self.cut)
        elif self.flip is not None:
            with path.open("r+b") as file:
                file.seek(self.flip // 8)
                byte = file.read(1)[0]
                file.seek(self.flip // 8)
                file.write(bytes([byte ^ 1 << self.flip % 8]))
        else:
            path.unlink()

    def __str__(self) -> str:
        what = f"cut at {self.cut}" if self.cut is not None else f"bit {self.flip} flipped"
        return f"{self.file} {what if (self.cut, self.flip) != (None, None) else 'removed'}"


def damages(folder: Path, rng: random.Random, flips: int) -> Iterator[Damage]:
    """Every file but the lock, which is empty: removed, cut, and with so many bits flipped."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == "lock":
            continue
        name, size = str(path.relative_to(folder)), path.stat().st_size
        yield Damage(name)
        for cut in (0, size // 2, size - 1):
            yield Damage(name, cut=cut)
        for _ in range(flips):
            yield Damage(name, flip=rng.randrange(size * 8))
            yield Damage(name, flip=rng.randrange(min(size, 256) * 8))
            if path.parent.name == "columns" and path.suffix != ".coded":
                start = (size - TRAILER) * 8
                yield Damage(name, flip=start + rng.randrange(48 * 8))


def damaged_copies(
    folder: Path, work: Path, rng: random.Random, flips: int
) -> Iterator[tuple[Damage, Path]]:
    """A copy of the folder with every damage."""
    for number, damage in enumerate(damages(folder, rng, flips)):
        copied = work / str(number)
        shutil.copytree(folder, copied)
        damage.apply(copied)
        yield damage, copied
        shutil.rmtree(copied)
