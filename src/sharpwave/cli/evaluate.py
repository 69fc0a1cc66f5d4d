"""`sharpwave eval`."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import algorithm_class, is_of_language
from sharpwave.cli.environment import add_env_options, import_modules
from sharpwave.cli.folders import find_checkpoint, plan_folder
from sharpwave.cli.language import add_language_options, source_arguments, trusted_language
from sharpwave.cli.parser import Parser, count
from sharpwave.cli.playing import player_of
from sharpwave.cli.run_plan import Plan
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.pages.samples import as_text, picked
from sharpwave.pages.units import short
from sharpwave.storage.checkpoints import read_header

if TYPE_CHECKING:
    from sharpwave.algorithms.trainer import Trainer

EPISODES, PROMPTS = 20, 100
"""Default numbers of episodes and prompts of an evaluation."""


def run(arguments: list[str]) -> int:
    """Evaluate, and return the exit status."""
    parsed = _parser().parse(arguments)
    path = find_checkpoint(parsed.run)

    import_modules(parsed.imports)  # which may register the algorithm
    with input_errors():
        has_model = is_of_language(algorithm_class(read_header(path)["algorithm"]))
        trainer = _writer_of(path, parsed) if has_model else player_of(path, parsed)
    given = {} if has_model else {"seed": parsed.seed}
    size = parsed.episodes or (PROMPTS if has_model else EPISODES)
    try:
        result = trainer.evaluate(size, deterministic=not parsed.stochastic, **given)
    finally:
        trainer.close()
    algo = trainer.algo
    where = algo.subject if has_model else algo.facts().get("env_id")
    what = algo.loop.headline.evaluated.words if has_model else "return"
    say(f"{path}: {algo.name} on {where}, {algo.timesteps:,} {short(algo.unit)}")
    say(f"{what} {result}")
    say(f"length {result.mean_length:,.1f}")
    for line in _of_agents(result, getattr(algo, "env", None)):
        say(line)
    for rank, row in picked(result.samples or ()).items():
        worth = "" if row["reward"] is None else f" {row['reward']:.4g}"
        say(f"{rank}{worth}: {as_text(row['prompt'])} → {as_text(row['completion'])}")
    return 0


def _of_agents(result: Any, env: Any) -> Iterator[str]:
    """The mean return of each of several agents, below that of its group where there are more."""
    means = result.agent_means if len(result.agents) > 1 else {}
    groups = env.groups if means else {}
    width = max(map(len, [*groups, *means]), default=0)
    for group, agents in groups.items():
        if len(groups) > 1 and tuple(agents) != (group,):
            mean = statistics.fmean(means[agent] for agent in agents)
            yield f"  {group:<{width}}  {mean:,.2f}"
        for agent in agents:
            yield f"  {agent:<{width}}  {means[agent]:,.2f}"


def _writer_of(path: Path, parsed: argparse.Namespace) -> Trainer:
    """The trainer of a checkpoint whose language model is judged."""
    from sharpwave.algorithms.trainer import Trainer

    if parsed.seed is not None or parsed.env is not None:
        raise UserError(f"{path} holds a language model: --seed and --env are for what plays")
    folder = plan_folder(path)
    plan = Plan(algorithm=str(read_header(path)["algorithm"]))
    plan = plan if folder is None else Plan.from_file(folder / Plan.file)
    plan = trusted_language(plan, parsed, folder or path, "eval")
    given = source_arguments(plan)
    for name in ("prompts", "dataset"):
        if getattr(parsed, name, None) is not None:  # what was asked for, rather than held out
            given[f"eval_{name}"] = given[name]
    return Trainer.from_checkpoint(path, **given)


def _parser() -> Parser:
    parser = Parser(
        "eval",
        "Play episodes with a trained policy, or complete prompts with a language model, and say "
        "how they went.",
    )
    parser.add_argument("run", metavar="RUN", help="a checkpoint, or a run folder: its best one")
    parser.add_argument(
        "--episodes",
        type=count(1),
        metavar="N",
        help=f"episodes (default: {EPISODES}), or prompts or examples (default: {PROMPTS})",
    )
    parser.add_argument("--seed", type=count(0), metavar="N", help="seed of the episodes")
    parser.add_argument(
        "--stochastic",
        action="store_true",
        help="sample actions, or tokens, instead of taking the most likely ones",
    )
    add_env_options(parser, replaces=True)
    add_language_options(parser)
    return parser
