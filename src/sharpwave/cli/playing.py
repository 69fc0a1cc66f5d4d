"""A trained policy that a command lets play."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import algorithm_class, is_of_language
from sharpwave.cli.environment import given_env, import_modules, parse_env_kwargs
from sharpwave.cli.terminal import UserError
from sharpwave.storage.checkpoints import read_header

if TYPE_CHECKING:
    from sharpwave.algorithms.trainer import Trainer


def player_of(path: Path, parsed: argparse.Namespace) -> Trainer:
    """The trainer of a checkpoint whose policy plays episodes.

    Args:
        path: The checkpoint.
        parsed: With the options of an environment.

    Raises:
        UserError: The agent of the run plays no episodes.
    """
    from sharpwave.algorithms.trainer import Trainer

    import_modules(parsed.imports)  # which may register the algorithm
    name = read_header(path)["algorithm"]
    algorithm = algorithm_class(name)
    if is_of_language(algorithm):
        raise UserError(
            f"{path} holds {name}, which plays no episodes: `sharpwave sample` reads it"
        )
    env, env_kwargs = given_env(parsed, algorithm), parse_env_kwargs(parsed.env_kwargs)
    given: dict[str, Any] = {} if env_kwargs is None else {"env_kwargs": env_kwargs}
    trainer = Trainer.from_checkpoint(path, env, **given)
    if not hasattr(trainer.algo, "evaluate"):
        trainer.close()
        raise UserError(f"{path} holds {trainer.algo.name}, which plays no episodes")
    return trainer
