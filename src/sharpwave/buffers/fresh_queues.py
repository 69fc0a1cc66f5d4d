"""Queues of the selector `Fresh`, which know the windows drawn already, in saves and folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from sharpwave import _native
from sharpwave.errors import SharpwaveIOError

NAME = "fresh.json"
"""The file in the folder of a buffer."""


def dump_queues(engine: _native.Engine) -> list[Any]:
    """The queues as JSON has them; an empty list where nothing was drawn by `Fresh`."""
    return [
        [rows, [list(place) for place in places]] for rows, places in _native.fresh_queues(engine)
    ]


def load_queues(engine: _native.Engine, saved: Any) -> None:
    """Go on with queues that `dump_queues` gave.

    Raises:
        TypeError, ValueError: They are not those of such a buffer.
    """
    queues = [(int(rows), [(int(a), int(b)) for a, b in places]) for rows, places in saved]
    if any(not 0 <= n < 2**62 for rows, places in queues for pair in places for n in (rows, *pair)):
        raise ValueError("saved queues must be counts")
    _native.restore_fresh_queues(engine, queues)


def write_queues(engine: _native.Engine, folder: Path) -> None:
    """Write the queues to the folder of a buffer, where there are any."""
    queues = dump_queues(engine)
    if not queues:
        return
    path = folder / NAME
    beside = path.with_name(NAME + ".tmp")
    try:
        with beside.open("w", encoding="ascii") as file:
            json.dump(queues, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise SharpwaveIOError(error.errno, f"cannot write {path}: {error}") from error


def read_queues(engine: _native.Engine, folder: Path) -> None:
    """Go on with the queues in the folder of a buffer, where there are any.

    Raises:
        SharpwaveIOError: The file is damaged.
    """
    path = folder / NAME
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise SharpwaveIOError(f"cannot read {path}: {error}") from error
    try:
        load_queues(engine, json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise SharpwaveIOError(
            f"{path} is corrupt: {error}; without it every window is fresh again"
        ) from error
