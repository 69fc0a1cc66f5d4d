"""`sharpwave push`."""

from __future__ import annotations

from typing import Any

from sharpwave.cli.environment import add_env_options
from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.playing import player_of
from sharpwave.cli.terminal import input_errors, say


def run(arguments: list[str]) -> int:
    """Publish the agent of a run, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)
    with input_errors():
        trainer = player_of(path, parsed)
        try:
            agent: Any = trainer.algo
            played = agent.evaluate(parsed.episodes) if parsed.episodes else None
            url = agent.push_to_hub(
                parsed.repository, evaluation=played, private=parsed.private or None
            )
        finally:
            trainer.close()
    say(f"{agent.name} of {path}: {url}")
    return 0


def _parser() -> Parser:
    parser = Parser("push", "Publish a trained agent on the Hugging Face Hub, with a model card.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument("repository", metavar="USER/NAME", help="repository to write to")
    parser.add_argument(
        "--episodes",
        type=count(0),
        default=20,
        metavar="N",
        help="episodes to play for the result on the card; 0 for none (20)",
    )
    parser.add_argument(
        "--private", action="store_true", help="others do not see a repository that is made"
    )
    add_env_options(parser, replaces=True)
    return parser
