"""`sharpwave serve-replay`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from sharpwave.cli.listening import access_of, add_access_options, ending
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import input_errors, say
from sharpwave.distributed.replay import ReplayServer, ShardOptions


def run(arguments: list[str]) -> int:
    """Hold a shard until Ctrl-C or SIGTERM, and return the exit status."""
    parsed = _parser().parse(arguments)
    with ending():
        with input_errors():
            folder = None if parsed.folder is None else Path(parsed.folder)
            options = ShardOptions(folder, parsed.capacity, parsed.prioritized, parsed.alpha)
            server = ReplayServer(
                options,
                parsed.host,
                parsed.port,
                access_of(parsed),
                max_clients=parsed.max_clients,
            )
        with server:
            size, where = server.shard.state().size, parsed.folder or "memory"
            say(f"{server.address} holds {size:,} steps in {where}, until Ctrl-C")
            with contextlib.suppress(KeyboardInterrupt):
                while True:  # a signal that interrupts a lock of gRPC's would break it
                    time.sleep(60)
    say("stopped")
    return 0


def _parser() -> Parser:
    parser = Parser(
        "serve-replay",
        "Hold a shard of a replay buffer, which other processes push to and draw from over gRPC. "
        "The first client defines the fields of a step.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="folder of a persistent shard (default: in memory)",
    )
    parser.add_argument(
        "--capacity",
        type=count(1),
        default=1_000_000,
        metavar="N",
        help="capacity in steps (default: 1e6)",
    )
    parser.add_argument("--prioritized", action="store_true", help="draw by priority")
    parser.add_argument(
        "--alpha", type=float, metavar="X", help="priority exponent α (default: 0.6)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=count(0),
        default=50052,
        metavar="N",
        help="port to listen at (default: 50052)",
    )
    parser.add_argument(
        "--max-clients",
        type=count(1),
        default=64,
        metavar="N",
        help="maximum number of concurrent clients (default: 64)",
    )
    add_access_options(parser)
    return parser
