"""`sharpwave repair`."""

from __future__ import annotations

import warnings
from pathlib import Path

from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser
from sharpwave.cli.progress import progress_bar
from sharpwave.cli.terminal import UserError, input_errors, say

DAMAGED = 1


def run(arguments: list[str]) -> int:
    """Repair a folder, or say what that would cost, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = existing(parsed.folder)

    from sharpwave.storage.folder import StoreFolder

    with input_errors(), progress_bar() as progress:
        kind = StoreFolder.open(path, repair=True).kind
        progress("checksums", 0, 0)
        repaired = {"episodes": _repair_episodes, "replay": _repair_replay}.get(kind)
        if repaired is None:
            raise UserError(f"{path} holds {kind!r}, which this library does not know")
        damage, lost = repaired(path, dry_run=parsed.dry_run)
    if not damage:
        say(f"{path}: all checksums are right, nothing to repair")
        return 0
    for line in damage:
        say(line)
    if parsed.dry_run:
        say(f"{path}: a repair would give up {lost}")
        return DAMAGED
    say(f"{path}: repaired, {lost} given up")
    return 0


def _repair_episodes(path: Path, *, dry_run: bool) -> tuple[list[str], str]:
    """The damaged files, and the data that repairing gives up, in words."""
    from sharpwave.episodes import EpisodeBuffer

    with EpisodeBuffer.from_folder(path, read_only=dry_run, repair=True) as buffer:
        lost = buffer.lost
    if not lost.ids:
        return list(lost.chunks), "nothing"
    listed = ", ".join(map(str, lost.ids[:20])) + (", ..." if len(lost.ids) > 20 else "")
    count = "1 episode" if len(lost.ids) == 1 else f"{len(lost.ids):,} episodes"
    return list(lost.chunks), f"{count} with {lost.n_steps:,} steps ({listed})"


def _repair_replay(path: Path, *, dry_run: bool) -> tuple[list[str], str]:
    """The damaged files, and the data that repairing gives up, in words."""
    from sharpwave.buffers.mmap import MmapReplayBuffer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says what is said here
        buffer = MmapReplayBuffer.open(path, read_only=dry_run, repair=True)
    with buffer:
        return list(buffer.damage), f"{buffer._engine.lost_steps:,} steps"


def _parser() -> Parser:
    parser = Parser("repair", "Remove the damaged parts of a folder, and report what was lost.")
    parser.add_argument(
        "folder", metavar="FOLDER", help="folder of episodes, or of a replay buffer"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be lost; write nothing"
    )
    return parser
