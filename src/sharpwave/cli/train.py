"""`sharpwave train`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.presets import find_preset, preset
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.cli.parser import Parser, add_config_options, config_options
from sharpwave.cli.plan import Plan, RunOptions
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.train.config import Config

if TYPE_CHECKING:
    from sharpwave.train.algorithm import Algorithm


def run(arguments: list[str]) -> int:
    """Train, and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        say(_general_help())
        return 0
    with input_errors():
        algorithm = algorithm_class(_algorithm_in(arguments))
    parsed = parser_of(algorithm).parse(arguments)

    from sharpwave.cli.running import carry_out, require_env

    if parsed.env is not None:
        require_env(parsed.env)
    with input_errors():
        plan = plan_of(parsed, algorithm.Config)
    run_dir = _run_dir(parsed.run_dir, plan)
    plan.to_json(run_dir / Plan.file)
    return carry_out(plan, run_dir, quiet=parsed.quiet)


def parser_of(algorithm: type[Algorithm]) -> Parser:
    """The parser of `sharpwave train ALGORITHM`."""
    name = algorithm.name
    parser = Parser(f"train {name}", f"Train {name} and write a run folder.")
    parser.add_argument("algorithm", help=argparse.SUPPRESS)
    if "dataset" in algorithm.leading_arguments:
        _add_dataset(parser, name)
    else:
        parser.usage = f"sharpwave train {name} ENV [options]"
        parser.set_defaults(dataset=None)
        parser.add_argument("env", metavar="ENV", help="id of the environment, such as CartPole-v1")
    parser.add_argument("--config", metavar="FILE", help="YAML, TOML or JSON file of options")
    parser.add_argument(
        "--preset",
        action=argparse.BooleanOptionalAction,
        help="start from the settings known to work for the environment "
        "(done where there are some, unless --no-preset)",
    )
    parser.add_argument("--seeds", metavar="N,N", help="one run for each of these seeds, compared")
    parser.add_argument("--run-dir", metavar="DIR", help="folder of the run (default: runs/...)")
    parser.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    add_config_options(parser, RunOptions, "beside the training")
    add_config_options(parser, algorithm.Config, f"options of {name}")
    return parser


def _add_dataset(parser: Parser, name: str) -> None:
    parser.usage = f"sharpwave train {name} --dataset DATA [--eval-env ENV] [options]"
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="DATA",
        help="what to learn from: a folder of episodes or of a replay buffer, a file such as .hdf5 "
        "or .npz, or minari:ID",
    )
    parser.add_argument(
        "--eval-env",
        dest="env",
        metavar="ENV",
        help="id of the environment to evaluate in; its bounds are those of the actions",
    )


def plan_of(parsed: argparse.Namespace, config: type[Config]) -> Plan:
    """What the arguments ask for: preset, then file, then single options.

    Raises:
        OSError: The file cannot be read.
        TypeError: An option is unknown or has the wrong type.
        ValueError: An option has an impossible value, or there is no preset.
    """
    algorithm = parsed.algorithm.lower()
    settings: dict[str, Any] = {}
    if parsed.preset is True:
        settings = preset(algorithm, parsed.env or "")
    elif parsed.preset is None:
        settings = find_preset(algorithm, parsed.env or "") or {}
    if parsed.config is not None:
        settings.update(config.read_options(parsed.config))
    given = config_options(parsed, config)
    if parsed.seeds is not None and "seed" in given:
        raise ValueError("--seed and --seeds exclude each other")
    return Plan(
        algorithm=algorithm,
        env_id=parsed.env,
        dataset=_absolute(parsed.dataset),
        config=config.from_dict({**settings, **given}).to_dict(),
        seeds=_seeds(parsed.seeds),
        **config_options(parsed, RunOptions),
    )


def _absolute(dataset: str | None) -> str | None:
    """What finds the dataset from another folder too."""
    if dataset is None:
        return None
    from sharpwave.train.offline_data import name_of

    return name_of(dataset)


def _run_dir(given: str | None, plan: Plan) -> Path:
    """The folder of a new run, made."""
    if given is None:
        from sharpwave.train.run_folder import new_run_dir

        return new_run_dir(plan.algorithm, plan.env_id)
    path = Path(given)
    with input_errors():
        path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise UserError(
            f"{path} is not empty: `sharpwave resume {path}` goes on with a run, "
            "--run-dir takes another folder"
        )
    return path


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    seeds: tuple[int, ...] = Plan.parse({"seeds": text})["seeds"]
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(f"--seeds must be different numbers such as 0,1,2, got {text!r}")
    return seeds


def _algorithm_in(arguments: list[str]) -> str:
    """The algorithm among the arguments: the first, unless options come before it."""
    if not arguments[0].startswith("-"):
        return arguments[0]
    known = algorithm_names()
    found = [argument for argument in arguments if argument.lower() in known]
    if not found:
        raise ValueError(f"ALGORITHM must come first: one of {', '.join(known)}")
    return found[0]


def _general_help() -> str:
    names = ", ".join(algorithm_names())
    return (
        "usage: sharpwave train ALGORITHM ENV [options]\n"
        "       sharpwave train ALGORITHM --dataset DATA [--eval-env ENV] [options]\n\n"
        f"Train an algorithm ({names}) in a Gymnasium environment, or from a dataset, and write a "
        "run folder.\n\n"
        "sharpwave train ppo CartPole-v1\n"
        "sharpwave train ppo CartPole-v1 --learning-rate 'linear(1e-3, 0)' --seeds 0,1,2\n"
        "sharpwave train iql --dataset FOLDER --eval-env Pendulum-v1\n\n"
        "sharpwave train ALGORITHM --help    lists the options of an algorithm"
    )
