"""`sharpwave tune`."""

from __future__ import annotations

import argparse
from typing import Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.cli.environment import (
    add_env_options,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.parser import Parser, add_config_options, config_options, count, one_of
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.config.presets import preset
from sharpwave.pages.text import count as counted
from sharpwave.pages.text import score, share

SAMPLERS = ("tpe", "random", "cmaes")
PRUNERS = ("median", "halving", "none")
SHOWN = 5
"""Options whose importance is said at the end."""


def run(arguments: list[str]) -> int:
    """Tune, and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        say(_general_help())
        return 0
    with input_errors():
        algorithm = algorithm_class(arguments[0])
    parsed = _parser(algorithm).parse(arguments)
    import_modules(parsed.imports)
    require_env(parsed.env, algorithm)

    from sharpwave.tuning import Trial, tune

    best: list[float] = []

    def tell(trial: Trial) -> None:
        if trial.state == "complete" and trial.value is not None:
            best[:] = [max([trial.value, *best])]
        said = trial.reason or score(trial.value)
        say(f"trial {trial.number} {trial.state}: {said} (best {score(next(iter(best), None))})")

    with input_errors():
        fixed = config_options(parsed, algorithm.Config)
        try:
            tuned = tune(
                algorithm.name,
                parsed.env,
                trials=parsed.trials,
                storage=parsed.storage,
                space=parsed.space,
                config=_config(parsed, algorithm),
                sampler=parsed.sampler,
                pruner=parsed.pruner,
                jobs=parsed.jobs,
                seconds=parsed.seconds,
                evaluations=parsed.evaluations,
                eval_episodes=parsed.eval_episodes,
                seed=parsed.sampler_seed,
                env_kwargs=parse_env_kwargs(parsed.env_kwargs),
                wrappers=parsed.wrappers,
                imports=parsed.imports,
                on_trial=None if parsed.quiet else tell,
                **fixed,
            )
        except RuntimeError as error:
            raise UserError(str(error)) from error
    found = [f"{name} {share(part)}" for name, part in list(tuned.importances.items())[:SHOWN]]
    say(f"best of {counted(len(tuned.trials), 'trial')}: {score(tuned.best.value)}, trial "
        f"{tuned.best.number}{'; ' if found else ''}{', '.join(found)}")  # fmt: skip
    say(f"page: {tuned.page}")
    say(f"train with it: sharpwave train {algorithm.name} {parsed.env} --config {tuned.config}")
    return 0


def _config(parsed: argparse.Namespace, algorithm: Any) -> dict[str, Any]:
    """The options that trials begin with: a preset, then a file."""
    options: dict[str, Any] = {}
    if parsed.preset:
        options = preset(algorithm.name, parsed.env)
        options.pop("seed")  # of runs that are to be the same for everyone
    if parsed.config is not None:
        options.update(algorithm.Config.read_options(parsed.config))
    return options


def _parser(algorithm: Any) -> Parser:
    name = algorithm.name
    parser = Parser(f"tune {name}", f"Search for good options of {name}, by trials on all cores.")
    parser.usage = f"sharpwave tune {name} ENV [options]"
    parser.add_argument("algorithm", help=argparse.SUPPRESS)
    parser.add_argument("env", metavar="ENV", help="id of the environment, such as CartPole-v1")
    parser.add_argument(
        "--trials",
        type=count(1),
        default=50,
        metavar="N",
        help="trials of the study, those of earlier calls included (default: 50)",
    )
    parser.add_argument(
        "--storage",
        metavar="FILE",
        help="file of the study, which a later call goes on with; its page and its best "
        "configuration stand beside it (default: tuning/ALGORITHM_ENV.journal)",
    )
    parser.add_argument(
        "--space",
        metavar="FILE",
        help="YAML, TOML or JSON file of the options to vary: {low: 1e-5, high: 1e-2, log: true}, "
        "or a list of choices (default: the algorithm's own)",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="YAML, TOML or JSON file of options to begin with"
    )
    parser.add_argument(
        "--preset", action="store_true", help="begin with the preset of the environment"
    )
    for option, known, default, what in (
        ("sampler", SAMPLERS, "tpe", "proposes the options of trials"),
        ("pruner", PRUNERS, "median", "cuts trials that do badly at an evaluation"),
    ):
        parser.add_argument(
            f"--{option}",
            type=one_of(option, known),
            default=default,
            metavar="|".join(known),
            help=f"{what} (default: {default})",
        )
    for option, least, start, what in (
        ("jobs", 0, 0, "trials at the same time; 0 for as many as there are cores"),
        ("evaluations", 1, 5, "evaluations of a trial, the last of which is its value"),
        ("eval-episodes", 1, 10, "episodes of each"),
        ("sampler-seed", 0, 0, "seed of the proposals"),
    ):
        parser.add_argument(
            f"--{option}",
            type=count(least),
            default=start,
            metavar="N",
            help=f"{what} (default: {start})",
        )
    parser.add_argument(
        "--seconds", type=float, metavar="X", help="begin no trial after so many seconds"
    )
    parser.add_argument("--quiet", action="store_true", help="say only how it ended")
    add_env_options(parser)
    add_config_options(parser, algorithm.Config, f"options of {name} that stay as they are")
    return parser


def _general_help() -> str:
    return (
        "usage: sharpwave tune ALGORITHM ENV [options]\n\n"
        "Search for options of an algorithm whose training ends with the greatest return.\n\n"
        "sharpwave tune ppo CartPole-v1 --trials 50 --total-timesteps 50000\n"
        "sharpwave tune sac Pendulum-v1 --space my_space.yaml --pruner halving\n\n"
        "sharpwave tune ALGORITHM --help    lists the options of an algorithm"
    )
