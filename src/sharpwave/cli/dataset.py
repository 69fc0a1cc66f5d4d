"""`sharpwave dataset`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import LANGUAGE_NAMES, algorithm_class, algorithm_names
from sharpwave.cli.environment import add_import_option, import_modules, require_env
from sharpwave.cli.parser import Parser, count, one_of
from sharpwave.cli.progress import progress_bar
from sharpwave.cli.terminal import UserError, complain, input_errors, say

if TYPE_CHECKING:
    from sharpwave.datasets.playing import Progress

SCRIPTED = "scripted"
STOPPED = {"SIGINT": 130, "SIGTERM": 143}
LINES = 20
"""Number of progress lines of a training without a progress bar."""


def run(arguments: list[str]) -> int:
    """Make datasets, and return the exit status."""
    parsed = _parser().parse(arguments)

    from sharpwave.datasets import TrainingStopped, expert_ids

    import_modules(parsed.imports)
    require_env(parsed.env)
    by = parsed.by or (SCRIPTED if parsed.env in expert_ids() else "sac")
    try:
        with input_errors(), _progress() as progress:
            make = _scripted if by == SCRIPTED else _trained
            folders = make(parsed, by, progress)
    except TrainingStopped as stopped:
        complain(stopped)
        return STOPPED.get(stopped.reason or "", 1)
    for folder in folders:
        say(_line(folder))
    return 0


def _scripted(parsed: argparse.Namespace, by: str, progress: Progress) -> list[Path]:
    from sharpwave.datasets import make_dataset
    from sharpwave.datasets.kinds import parts_of

    for option in ("timesteps", "medium", "eval_freq", "config"):
        if getattr(parsed, option) is not None:
            raise UserError(f"--{option.replace('_', '-')} goes with --by sac: {by} trains nothing")
    kinds = parsed.kind or ["mixed"]
    out = Path(parsed.out)
    steps = parsed.steps or 20_000
    for kind in kinds:
        parts_of(parsed.env, kind, steps)  # all names are checked before anything is made
    folders = [out / kind if len(kinds) > 1 else out for kind in kinds]
    for kind, folder in zip(kinds, folders, strict=True):
        make_dataset(
            parsed.env,
            kind,
            folder,
            n_steps=steps,
            seed=parsed.seed,
            overwrite=parsed.overwrite,
            progress=progress,
        ).close()
    return folders


def _trained(parsed: argparse.Namespace, by: str, progress: Progress) -> list[Path]:
    from sharpwave.datasets import record_training

    if parsed.overwrite:
        raise UserError("--overwrite goes with --by scripted: what was trained is never replaced")
    given = {
        "kinds": parsed.kind,
        "n_steps": parsed.steps,
        "total_timesteps": parsed.timesteps,
        "medium": parsed.medium,
        "eval_freq": parsed.eval_freq,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if parsed.config is not None:
        options.update(algorithm_class(by).Config.read_options(parsed.config))
    made = record_training(
        parsed.env, parsed.out, algorithm=by, seed=parsed.seed, progress=progress, **options
    )
    return list(made.values())


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """A bar, or a line now and then about what takes long."""
    if sys.stderr.isatty():
        with progress_bar() as bar:
            yield bar
        return
    said = 0

    def line(what: str, done: int, total: int) -> None:
        nonlocal said
        if what.startswith("training") and done * LINES // total > said:
            said = done * LINES // total
            say(f"{what}: {done:,} of {total:,} steps")

    yield line


def _line(folder: Path) -> str:
    from sharpwave.datasets import read_description

    found = read_description(folder)
    score = "" if found.get("score") is None else f", score {found['score']:.1f}"
    return (
        f"{found.get('kind')}: {found['n_episodes']:,} episodes, {found['n_steps']:,} steps, "
        f"return {found['mean_return']:.1f} ± {found['std_return']:.1f}{score}: {folder}"
    )


def _kinds(text: str) -> list[str]:
    return [kind.strip() for kind in text.split(",") if kind.strip()]


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def _parser() -> Parser:
    from sharpwave.datasets import KINDS, TRAINED_KINDS

    acting = [name for name in algorithm_names() if name not in LANGUAGE_NAMES]
    parser = Parser(
        "dataset",
        "Make datasets for offline learning: folders of episodes with dataset.json, which says how "
        "they were made. Scripted experts make them in seconds; an algorithm makes them by the "
        "protocol of D4RL, and when interrupted, the same command goes on.",
    )
    parser.add_argument("env", metavar="ENV", help="id of the environment, such as Pendulum-v1")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="folder of the datasets")
    parser.add_argument(
        "--kind",
        type=_kinds,
        metavar="KIND,KIND",
        help=f"kinds of datasets; scripted: {', '.join(KINDS)} (default: mixed); "
        f"trained: {', '.join(TRAINED_KINDS)} (default: random,medium,medium-replay,expert). "
        "Several become folders in FOLDER, and so does everything that is trained",
    )
    parser.add_argument(
        "--by",
        type=one_of("maker", [SCRIPTED, *acting]),
        metavar="NAME",
        help="scripted, or the algorithm that is trained, such as sac (default: scripted where ENV "
        "has a scripted expert, else sac)",
    )
    parser.add_argument(
        "--steps",
        type=count(1),
        metavar="N",
        help="steps of a dataset (default: 20000 scripted, 200000 trained)",
    )
    parser.add_argument("--seed", type=count(0), default=0, metavar="N", help="seed (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace scripted datasets")
    add_import_option(parser)
    group = parser.add_argument_group("training")
    group.add_argument(
        "--timesteps",
        type=count(1),
        metavar="N",
        help="environment steps of training (default: the preset's, else the algorithm's)",
    )
    group.add_argument(
        "--medium",
        type=_fraction,
        metavar="X",
        help="how far from random to expert the medium policy is, from 0 to 1 (default: a third)",
    )
    group.add_argument(
        "--eval-freq", type=count(1), metavar="N", help="steps between evaluations (default: 10000)"
    )
    group.add_argument("--config", metavar="FILE", help="YAML, TOML or JSON file of options")
    return parser
