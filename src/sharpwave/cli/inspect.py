"""`sharpwave inspect`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from sharpwave.cli.folders import existing
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.progress import progress_bar
from sharpwave.cli.terminal import UserError, input_errors, say

if TYPE_CHECKING:
    from sharpwave.pages.viewer import Viewer

DAMAGED = 1


def run(arguments: list[str]) -> int:
    """Show what a folder holds, and return the exit status: 1 when it is damaged."""
    parsed = _parser().parse(arguments)
    path = existing(parsed.folder)
    if parsed.serve and (parsed.json or parsed.html):
        raise UserError("--serve excludes --json and --html: it goes on until Ctrl-C")

    from sharpwave.pages.viewer import Viewer

    with input_errors(), progress_bar() as progress:
        viewer = Viewer(path, full=parsed.full, verify=parsed.verify, progress=progress)
    with viewer:
        if parsed.serve:
            _serve(viewer, parsed.port)
            return 0
        if parsed.json:
            say(json.dumps(viewer.summary.to_json(), indent=2, allow_nan=False))
        elif not parsed.html:
            viewer.print()
        if parsed.html:
            _write(viewer, parsed)
        return DAMAGED if viewer.summary.condition.damage else 0


def _write(viewer: Viewer, parsed: argparse.Namespace) -> None:
    with input_errors(), progress_bar() as progress:
        carried = viewer.write_page(
            Path(parsed.html), episodes=parsed.episodes, limit=parsed.limit << 20, progress=progress
        )
    if not parsed.json:
        say(f"page: {parsed.html}, with {carried:,} of {len(viewer):,} episodes to look into")


def _serve(viewer: Viewer, port: int) -> None:
    with input_errors():
        server = viewer.server(port)
    with server:
        say(f"{server.url} shows the folder until Ctrl-C")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("stopped")


def _parser() -> Parser:
    parser = Parser("inspect", "Show what a folder of episodes or a replay buffer on disk holds.")
    parser.add_argument(
        "folder", metavar="FOLDER", help="folder of episodes, or of a replay buffer"
    )
    parser.add_argument("--html", metavar="FILE.html", help="write a page of one file instead")
    parser.add_argument(
        "--episodes",
        type=count(0),
        default=8,
        metavar="N",
        help="episodes to show on that page (default: 8)",
    )
    parser.add_argument(
        "--limit",
        type=count(1),
        default=24,
        metavar="MIB",
        help="maximum size of these episodes on the page (default: 24)",
    )
    parser.add_argument(
        "--serve", action="store_true", help="show a live page in a browser on this machine"
    )
    parser.add_argument(
        "--port", type=count(0), default=0, metavar="N", help="port of --serve; 0 for a free one"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--full", action="store_true", help="read all of large fields")
    parser.add_argument("--verify", action="store_true", help="compare all checksums")
    return parser
