"""Episodes that go from one place to another, shown as they go."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from sharpwave.cli.parser import Parser, count, one_of
from sharpwave.cli.terminal import UserError, complain, say
from sharpwave.formats import FORMATS, EpisodeStream, write_episodes

WRITABLE = [name for name, each in FORMATS.items() if each.can_write]


def add_target_options(parser: Parser) -> None:
    """Add the options of what is written."""
    parser.add_argument(
        "--to",
        type=one_of("format", WRITABLE),
        metavar="FORMAT",
        help="format of DST: " + ", ".join(WRITABLE) + " (default: by its suffix, else episodes)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a DST of the same format")
    parser.add_argument(
        "--fps", type=count(1), metavar="N", help="steps per second, for lerobot (default: 30)"
    )


def write_with_progress(stream: EpisodeStream, parsed: Any) -> None:
    """Write episodes to DST, with a progress bar where standard error is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    if parsed.fps is not None and parsed.to != "lerobot":
        raise UserError("--fps goes with --to lerobot")
    options = {} if parsed.fps is None else {"fps": parsed.fps}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("steps", total=stream.n_steps)
        shown = stream.watched(lambda steps: bar.advance(task, steps))
        write_episodes(shown, parsed.target, parsed.to, overwrite=parsed.overwrite, **options)
    say(f"{len(stream):,} episodes, {stream.n_steps:,} steps: {parsed.target}")


@contextlib.contextmanager
def said_warnings() -> Iterator[None]:
    """Warnings inside this block are said as lines on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in caught):
                complain(text)
