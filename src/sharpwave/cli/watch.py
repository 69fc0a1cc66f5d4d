"""`sharpwave watch`."""

from __future__ import annotations

from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import input_errors, say


def run(arguments: list[str]) -> int:
    """Show runs on a live page until Ctrl-C, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = existing(parsed.folder)

    from sharpwave.pages.watch import WatchedRuns, watch_server

    with input_errors():
        server = watch_server(WatchedRuns(path), parsed.port)
    with server:
        say(f"{server.url} shows the runs in {path} until Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")
    return 0


def _parser() -> Parser:
    parser = Parser("watch", "Show many runs on one live page, in a browser on this machine.")
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="runs", help="folder of run folders (runs)"
    )
    parser.add_argument(
        "--port", type=count(0), default=0, metavar="N", help="port; 0 for a free one"
    )
    return parser
