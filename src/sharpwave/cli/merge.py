"""`sharpwave merge`."""

from __future__ import annotations

from sharpwave.cli.episodes import add_target_options, said_warnings, write_with_progress
from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser
from sharpwave.cli.terminal import input_errors
from sharpwave.formats import read_episodes
from sharpwave.formats.stream import concatenated


def run(arguments: list[str]) -> int:
    """Merge, and return the exit status."""
    parsed = _parser().parse(arguments)
    sources = [existing(path) for path in parsed.sources]
    with input_errors(), said_warnings():
        write_with_progress(concatenated([read_episodes(path) for path in sources]), parsed)
    return 0


def _parser() -> Parser:
    parser = Parser("merge", "Write the episodes of several files or folders to one.")
    parser.add_argument("target", metavar="DST", help="file or folder to write")
    parser.add_argument("sources", metavar="SRC", nargs="+", help="files or folders of episodes")
    add_target_options(parser)
    return parser
