"""Run folders by path."""

from __future__ import annotations

import re
import time
from pathlib import Path

from sharpwave.cli.terminal import UserError
from sharpwave.nearest import did_you_mean

SUFFIX = ".safetensors"


def new_run_dir(algorithm: str, env_id: str) -> Path:
    """A folder under `runs/` that does not exist yet."""
    environment = re.sub(r"[^\w.-]+", "-", env_id)
    base = Path("runs") / f"{algorithm}-{environment}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def existing(path: str | Path) -> Path:
    """The path, which must exist.

    Raises:
        UserError: It does not; the nearest in its folder is named.
    """
    path = Path(path)
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        close = did_you_mean(str(path), [str(other) for other in beside])
        raise UserError(f"there is no {path}{close}")
    return path


def checkpoint_path(run_dir: Path, name: str) -> Path:
    """Where a run folder keeps a checkpoint, such as `latest` or `best`."""
    return run_dir / "checkpoints" / (name + SUFFIX)


def find_checkpoint(path: str | Path, preferred: tuple[str, ...] = ("best", "latest")) -> Path:
    """A checkpoint by its own path or by that of its run folder.

    Raises:
        UserError: There is none.
    """
    path = existing(path)
    if path.is_file():
        return path
    for name in preferred:
        if checkpoint_path(path, name).is_file():
            return checkpoint_path(path, name)
    parts = seed_folders(path)
    if parts:
        raise UserError(f"{path} holds several runs: name one of them, such as {parts[0]}")
    raise UserError(f"there is no checkpoint in {path / 'checkpoints'}")


def seed_folders(path: Path) -> list[Path]:
    """The runs of the single seeds in a folder, in the order of the seeds."""
    found = [(re.fullmatch(r"seed_(\d+)", part.name), part) for part in path.glob("seed_*")]
    return [part for _, part in sorted((int(m[1]), part) for m, part in found if m)]
