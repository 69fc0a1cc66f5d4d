"""`sharpwave train`."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import (
    algorithm_class,
    algorithm_names,
    is_of_language,
    is_of_many_agents,
    source_names,
)
from sharpwave.cli.environment import (
    add_env_options,
    add_import_option,
    import_modules,
    parse_env_kwargs,
    require_env,
)
from sharpwave.cli.language import add_language_options, language_of
from sharpwave.cli.learners import check_learners, has_to_launch, launch
from sharpwave.cli.listening import add_token_option, use_token
from sharpwave.cli.many_agents import add_agent_options, agents_of
from sharpwave.cli.parser import Parser, add_config_options, config_options
from sharpwave.cli.run_plan import Plan, RunOptions
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.config.presets import find_preset, preset, settings_of

if TYPE_CHECKING:
    from sharpwave.agents import Agent

PLAYING = {"eval_episodes", "video"}
"""Options that algorithms of language models lack, since they play no episodes."""


def run(arguments: list[str]) -> int:
    """Train, and return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        say(_general_help())
        return 0
    import_modules(_imports_in(arguments))  # which may register the algorithm
    with input_errors():
        algorithm = algorithm_class(_algorithm_in(arguments))
    parsed = parser_of(algorithm).parse(arguments)

    from sharpwave.cli.running import carry_out

    if parsed.env is not None:
        require_env(parsed.env, algorithm)
    with input_errors():
        use_token(parsed)
        plan = plan_of(parsed, algorithm)
        check_learners(plan)
    if has_to_launch(plan):
        return launch(plan.learners, ["-m", "sharpwave", "train", *arguments])
    ranks = plan.ranks
    with new_folder(parsed.run_dir, plan) if ranks.leads else contextlib.nullcontext() as own:
        run_dir = ranks.first(own)
        begin = partial(plan.to_json, run_dir / Plan.file) if ranks.leads else lambda: None
        return carry_out(plan, run_dir, quiet=parsed.quiet, begin=begin)


def parser_of(algorithm: type[Agent]) -> Parser:
    """The parser of `sharpwave train ALGORITHM`."""
    name = algorithm.name
    parser = Parser(f"train {name}", f"Train {name} and write a run folder.")
    parser.add_argument("algorithm", help=argparse.SUPPRESS)
    takes, has_model = source_names(algorithm), is_of_language(algorithm)
    parser.set_defaults(env=None, env_kwargs=None, wrappers=[])
    if has_model:
        source = (
            "--prompts FILE --reward MODULE:FUNCTION"
            if "dataset" not in takes
            else "--dataset FILE"
        )
        parser.usage = (
            f"sharpwave train {name} --task TASK [options]\n"
            f"       sharpwave train {name} --model FOLDER {source} [options]"
        )
    elif "dataset" in takes:
        _add_dataset(parser, name)
    elif "env_id" in takes:
        parser.usage = f"sharpwave train {name} ENV [options]"
        parser.add_argument(
            "env",
            metavar="ENV",
            help=_env_help(algorithm),
        )
    parser.add_argument("--config", metavar="FILE", help="YAML, TOML or JSON file of options")
    place = "task" if has_model else "environment"
    parser.add_argument(
        "--preset",
        nargs="?",
        const=True,
        metavar="NAME",
        help=f"start from the preset of the {place}, or from those of that name "
        "(done for it where there are some, unless --no-preset)",
    )
    parser.add_argument(
        "--no-preset", dest="preset", action="store_false", help="start from the defaults"
    )
    parser.add_argument(
        "--seeds", metavar="N,N", help="a run for each of these seeds, compared: 0,1,2 or 0..15"
    )
    parser.add_argument("--run-dir", metavar="DIR", help="folder of the run (default: runs/...)")
    parser.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    if has_model:
        add_import_option(parser, "an algorithm")
        add_language_options(parser, algorithm)
    elif takes:
        add_env_options(parser)
        if "token" in getattr(algorithm, "secrets", ()):
            add_token_option(parser)
        if is_of_many_agents(algorithm):
            add_agent_options(parser, algorithm)
    else:
        add_import_option(parser)
    beside = set(RunOptions.annotations()) - (PLAYING if has_model else set())
    add_config_options(
        parser, RunOptions, "evaluations, checkpoints, loggers and processes", only=beside
    )
    add_config_options(parser, algorithm.Config, f"options of {name}")
    return parser


def _env_help(algorithm: type[Agent]) -> str:
    if is_of_many_agents(algorithm):
        return (
            "id of the environment, such as mpe2/simple_spread_v3, or the module of one of your "
            "own, such as my_module.tag, whose parallel_env or env makes it"
        )
    return (
        "id of the environment, such as CartPole-v1, or my_module:My-v0 for one that a module of "
        "your own registers"
    )


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


def plan_of(parsed: argparse.Namespace, algorithm: type[Agent]) -> Plan:
    """The plan that the arguments ask for: preset, then file, then single options.

    Raises:
        OSError: The file cannot be read.
        TypeError: An option is unknown or has the wrong type.
        ValueError: An option has an impossible value, or there is no preset.
    """
    name, config = algorithm.name, algorithm.Config
    has_model = is_of_language(algorithm)
    language = language_of(parsed) if has_model else {}
    if has_model and language["task"] is None and language["model"] is None:
        raise ValueError(f"{name} needs --task TASK, or --model FOLDER and what to learn from")
    place = language.get("task") or parsed.env or ""
    settings: dict[str, Any] = {}
    if parsed.preset is True:
        settings = preset(name, place)
    elif parsed.preset is None:
        settings = find_preset(name, place) or {}
    elif parsed.preset is not False:
        settings = settings_of(name, parsed.preset)
    if parsed.config is not None:
        settings.update(config.read_options(parsed.config))
    given = config_options(parsed, config)
    if parsed.seeds is not None and "seed" in given:
        raise ValueError("--seed and --seeds exclude each other")
    return Plan(
        algorithm=name,
        env_id=parsed.env,
        env_kwargs=parse_env_kwargs(parsed.env_kwargs) or {},
        wrappers=tuple(parsed.wrappers),
        imports=tuple(parsed.imports),
        dataset=None if has_model else _absolute(getattr(parsed, "dataset", None)),
        language=language,
        agents=agents_of(parsed),
        config=config.from_dict({**settings, **given}).to_dict(),
        seeds=_seeds(parsed.seeds),
        **config_options(parsed, RunOptions),
    )


def _absolute(dataset: str | None) -> str | None:
    """Name or absolute path of the dataset, valid in every folder."""
    if dataset is None:
        return None
    from sharpwave.loops.offline_data import name_of

    return name_of(dataset)


@contextlib.contextmanager
def new_folder(given: str | None, plan: Plan) -> Iterator[Path]:
    """The folder of a new run; a run that is refused before it begins leaves none."""
    from sharpwave.storage.run_folder import new_run_dir

    root = Path("runs") if given is None else Path(given)
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    with input_errors():
        if given is None:
            path = new_run_dir(plan.algorithm, plan.place)
            missing.insert(0, path)
        else:
            path = root
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UserError(
                    f"{path} is not empty: `sharpwave resume {path}` goes on with a run, "
                    "--run-dir takes another folder"
                )
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):  # which is so where the run has written something
            for folder in missing:
                folder.rmdir()
        raise


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    first, dots, last = text.partition("..")
    if dots:
        if not (first.isdecimal() and last.isdecimal()):
            raise ValueError(f"--seeds must be such as 0..15, got {text!r}")
        seeds = tuple(range(int(first), int(last) + 1))
    else:
        seeds = Plan.parse({"seeds": text})["seeds"]
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


def _imports_in(arguments: list[str]) -> list[str]:
    """The modules to import, which are known before all other options are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--import", dest="imports", action="append", default=[], nargs="?")
    return [name for name in parser.parse_known_args(arguments)[0].imports if name]


def _general_help() -> str:
    names = ", ".join(algorithm_names())
    what = (
        f"Train an algorithm ({names}) in an environment of Gymnasium or PettingZoo, from a "
        "dataset, or on a language model, and write a run folder."
    )
    return (
        "usage: sharpwave train ALGORITHM ENV [options]\n"
        "       sharpwave train ALGORITHM --dataset DATA [--eval-env ENV] [options]\n"
        "       sharpwave train ALGORITHM --task TASK [options]\n"
        "       sharpwave train ALGORITHM --model FOLDER [options]\n"
        "       sharpwave train ALGORITHM --import MODULE [options]\n\n"
        f"{textwrap.fill(what, shutil.get_terminal_size().columns)}\n\n"
        "sharpwave train ppo CartPole-v1\n"
        "sharpwave train ppo CartPole-v1 --learning-rate 'linear(1e-3, 0)' --seeds 0,1,2\n"
        "sharpwave train ppo my_module:My-v0 --env-kwargs size=5 --wrapper my_module:MyWrapper\n"
        "sharpwave train mappo mpe2/simple_spread_v3\n"
        "sharpwave train iql --dataset FOLDER --eval-env Pendulum-v1\n"
        "sharpwave train grpo --task copy4\n"
        "sharpwave train grpo --model FOLDER --prompts FILE --reward my_module:my_function\n\n"
        "sharpwave train ALGORITHM --help    lists the options of an algorithm"
    )
