"""`sharpwave enjoy`."""

from __future__ import annotations

from sharpwave.cli.environment import add_env_options
from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.playing import player_of
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.errors import EnvironmentFailed


def run(arguments: list[str]) -> int:
    """Show the policy, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    with input_errors():
        trainer = player_of(path, parsed)
        try:
            result = trainer.enjoy(
                parsed.episodes, parsed.record, deterministic=not parsed.stochastic
            )
        except EnvironmentFailed as error:
            if not type(error.__cause__).__module__.startswith("pygame"):
                raise
            raise UserError(
                f"no window can be opened here ({error.__cause__}): --record FILE.mp4 films instead"
            ) from error
        finally:
            trainer.close()
    say(f"return {result}")
    if parsed.record:
        say(f"film: {parsed.record}")
    return 0


def _parser() -> Parser:
    parser = Parser("enjoy", "Watch a trained policy play, or film it.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument(
        "--episodes", type=count(1), default=3, metavar="N", help="number of episodes (default: 3)"
    )
    parser.add_argument("--record", metavar="FILE.mp4", help="film it instead of opening a window")
    parser.add_argument(
        "--stochastic",
        action="store_true",
        help="sample actions instead of taking the most likely ones",
    )
    add_env_options(parser, replaces=True)
    return parser
