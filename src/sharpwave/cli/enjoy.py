"""`sharpwave enjoy`."""

from __future__ import annotations

from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import input_errors, say


def run(arguments: list[str]) -> int:
    """Show the policy, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    from sharpwave.train.trainer import Trainer

    with input_errors():
        trainer = Trainer.from_checkpoint(path, n_envs=1)
        try:
            result = trainer.enjoy(
                parsed.episodes, parsed.record, deterministic=not parsed.stochastic
            )
        finally:
            trainer.close()
    say(f"return {result}")
    if parsed.record:
        say(f"film: {parsed.record}")
    return 0


def _parser() -> Parser:
    parser = Parser("enjoy", "Watch a trained policy play, or film it.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument("--episodes", type=count(1), default=3, metavar="N", help="default: 3")
    parser.add_argument("--record", metavar="FILE.mp4", help="film it instead of opening a window")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions instead of taking the likeliest"
    )
    return parser
