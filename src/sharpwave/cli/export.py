"""`sharpwave export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.cli.environment import add_env_options
from sharpwave.cli.folders import find_checkpoint
from sharpwave.cli.parser import Parser
from sharpwave.cli.playing import player_of
from sharpwave.cli.terminal import UserError, input_errors, say


def run(arguments: list[str]) -> int:
    """Write the policy of a run to a file of its own, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)
    with input_errors():
        trainer = player_of(path, parsed)
        try:
            agent: Any = trainer.algo
            if not hasattr(agent, "export"):
                raise UserError(f"{path} holds {agent.name}, whose policy cannot be exported")
            file = agent.export(Path(parsed.file))
        finally:
            trainer.close()
    say(f"policy of {path}: {file}")
    return 0


def _parser() -> Parser:
    parser = Parser("export", "Write a trained policy to a file that runs without sharpwave.")
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument(
        "file",
        metavar="FILE",
        help="policy.npz for NumPy, policy.h for C, policy.onnx, or policy.pt2 for torch",
    )
    add_env_options(parser, replaces=True)
    return parser
