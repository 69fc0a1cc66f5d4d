"""A disk after the loss of power: it has of every page the flushed or any later content."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

PAGE = 4096
BOOT = slice(16, 32)
"""Offset in the file of the commit words that says which start of the system it is of."""

Files = dict[str, bytes]


def read_files(folder: Path) -> Files:
    """The content of all files but the lock, that of the commit words last."""
    paths = [p for p in folder.rglob("*") if p.is_file() and p.name != "lock"]
    found: Files = {}
    for path in sorted(paths, key=lambda path: path.name == "state"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def copies_of_words(files: Files) -> bytes:
    """The copies of the commit words, which change when they are saved."""
    return files["state"][PAGE:]


def lose_power(flushed: Files, now: Files, rng: random.Random, folder: Path) -> None:
    """Write a folder as the disk may have it, of what was flushed and what there was later."""
    (folder / "columns").mkdir(parents=True)
    for name in flushed.keys() | now.keys():
        if not (name in flushed and name in now) and rng.random() < 0.5:
            continue  # the folder's entry was, or was not, written
        new = now.get(name, flushed.get(name, b""))
        content = mixed(flushed.get(name, bytes(len(new))), new, rng)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    state = bytearray((folder / "state").read_bytes())
    state[BOOT] = bytes(16)
    (folder / "state").write_bytes(state)


def mixed(old: bytes, new: bytes, rng: random.Random) -> bytes:
    """Pages of one or the other; zeros behind the old one's end are pages, too."""
    size = len(rng.choice([old, new]))
    old, new = old.ljust(size, b"\0"), new.ljust(size, b"\0")
    share = rng.random()
    pages = range(0, size, PAGE)
    return b"".join((new if rng.random() < share else old)[i : i + PAGE] for i in pages)[:size]
