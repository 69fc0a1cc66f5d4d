"""`sharpwave convert`."""

from __future__ import annotations

from sharpwave.cli.episodes import add_target_options, said_warnings, write_with_progress
from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser, one_of
from sharpwave.cli.terminal import input_errors
from sharpwave.formats import FORMATS, read_episodes


def run(arguments: list[str]) -> int:
    """Convert, and return the exit status."""
    parsed = _parser().parse(arguments)
    if parsed.source_format != "minari":  # a Minari dataset may be named by its id
        existing(parsed.source)
    with input_errors(), said_warnings():
        write_with_progress(read_episodes(parsed.source, parsed.source_format), parsed)
    return 0


def _parser() -> Parser:
    parser = Parser("convert", "Write the episodes of one file or folder to another.")
    parser.add_argument("source", metavar="SRC", help="file or folder of episodes")
    parser.add_argument("target", metavar="DST", help="file or folder to write")
    parser.add_argument(
        "--from",
        dest="source_format",
        type=one_of("format", FORMATS),
        metavar="FORMAT",
        help="format of SRC: " + ", ".join(FORMATS) + " (default: by its content)",
    )
    add_target_options(parser)
    return parser
