"""`sharpwave eval`."""

from __future__ import annotations

from sharpwave.cli.environment import add_env_options
from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.playing import player_of
from sharpwave.cli.terminal import input_errors, say
from sharpwave.loops.units import short


def run(arguments: list[str]) -> int:
    """Evaluate, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    with input_errors():
        trainer = player_of(path, parsed)
    try:
        result = trainer.evaluate(
            parsed.episodes, deterministic=not parsed.stochastic, seed=parsed.seed
        )
    finally:
        trainer.close()
    algo = trainer.algo
    where = algo.facts().get("env_id")
    say(f"{path}: {algo.name} on {where}, {algo.timesteps:,} {short(algo.unit)}")
    say(f"return {result}")
    say(f"length {result.mean_length:,.1f}")
    return 0


def _parser() -> Parser:
    parser = Parser("eval", "Play episodes with a trained policy and say how they went.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument("--episodes", type=count(1), default=20, metavar="N", help="default: 20")
    parser.add_argument("--seed", type=count(0), metavar="N", help="seed of the episodes")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions instead of taking the likeliest"
    )
    add_env_options(parser, replaces=True)
    return parser
