"""Run folders by path."""

from __future__ import annotations

import re
from pathlib import Path

from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import UserError
from sharpwave.core.suggest import nearest
from sharpwave.storage.run_folder import RunFolder


def existing(path: str | Path) -> Path:
    """The path, which must exist.

    Raises:
        UserError: It does not; the nearest in its folder is named.
    """
    path = Path(path)
    if not path.exists():
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        close = nearest(path.name, [other.name for other in beside])
        hint = "" if close is None else f"; did you mean {str(path.parent / close)!r}?"
        raise UserError(f"{path} does not exist{hint}")
    return path


def find_checkpoint(path: str | Path) -> Path:
    """A checkpoint by its own path or by that of its run folder: the best, or else the latest.

    Raises:
        UserError: There is none.
    """
    path = existing(path)
    if path.is_file():
        return path
    folder = RunFolder(path)
    if folder.kept_checkpoint.is_file():
        return folder.kept_checkpoint
    parts = seed_folders(path)
    if parts:
        raise UserError(f"{path} holds several runs: name one of them, such as {parts[0]}")
    raise UserError(f"there is no checkpoint in {folder.checkpoints}")


def plan_folder(checkpoint: Path) -> Path | None:
    """The folder with the plan by which a checkpoint was made; None where no command made it."""
    checkpoints = checkpoint.absolute().parent
    around = (checkpoints.parent, checkpoints.parent.parent)  # of a run, or of several seeds
    return next((folder for folder in around if (folder / Plan.file).is_file()), None)


def seed_folders(path: Path) -> list[Path]:
    """The runs of the single seeds in a folder, in the order of the seeds."""
    found = [(re.fullmatch(r"seed_(\d+)", part.name), part) for part in path.glob("seed_*")]
    return [part for _, part in sorted((int(m[1]), part) for m, part in found if m)]
