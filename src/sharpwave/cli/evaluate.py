"""`sharpwave eval`."""

from __future__ import annotations

from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.terminal import input_errors, say


def run(arguments: list[str]) -> int:
    """Evaluate, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    from sharpwave.train.trainer import Trainer

    with input_errors():
        trainer = Trainer.from_checkpoint(path, parsed.env)
    try:
        result = trainer.evaluate(
            parsed.episodes, deterministic=not parsed.stochastic, seed=parsed.seed
        )
    finally:
        trainer.close()
    say(f"{path}: {trainer.algo.name} on {trainer.algo.env_id}, {trainer.algo.timesteps:,} steps")
    say(f"return {result.mean:.2f} ± {result.std:.2f} over {len(result.returns)} episodes")
    say(f"length {result.mean_length:.1f}")
    return 0


def _parser() -> Parser:
    parser = Parser("eval", "Play episodes with a trained policy and say how they went.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument("--episodes", type=count(1), default=20, metavar="N", help="default: 20")
    parser.add_argument("--env", metavar="ENV", help="another environment with the same spaces")
    parser.add_argument("--seed", type=count(0), metavar="N", help="seed of the episodes")
    parser.add_argument(
        "--stochastic", action="store_true", help="sample actions instead of taking the likeliest"
    )
    return parser
