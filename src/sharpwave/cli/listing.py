"""`sharpwave list`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import Any

from sharpwave.algorithms.registry import LANGUAGE_NAMES, algorithm_class, algorithm_names
from sharpwave.cli.parser import Parser, one_of
from sharpwave.cli.terminal import input_errors, say
from sharpwave.config.convert import choices_of
from sharpwave.config.preset_facts import evidence_of, source_of
from sharpwave.config.presets import presets
from sharpwave.core.lazy import llm

WHAT = ("algorithms", "presets", "envs", "tasks", "losses")


def run(arguments: list[str]) -> int:
    """List, and return the exit status."""
    parsed = _parser().parse(arguments)
    if parsed.what in (None, "algorithms"):
        _list_algorithms()
    if parsed.what in (None, "presets"):
        _list_presets()
    if parsed.what == "envs":
        _list_envs()
    if parsed.what == "tasks":
        _list_tasks()
    if parsed.what == "losses":
        _list_losses()
    return 0


def _list_algorithms() -> None:
    say("algorithms")
    for name in algorithm_names():
        summary = (algorithm_class(name).__doc__ or "").partition("\n")[0]
        say(_wrapped(name, summary))


def _list_presets() -> None:
    say("presets")
    for name in algorithm_names():
        for lead, line in _about_presets(name):
            say(_wrapped(lead, line))


def _about_presets(algorithm: str) -> Iterator[tuple[str, str]]:
    """A line for each preset with a result, and one for those of each source without."""
    without: dict[str, list[str]] = {}
    lead = algorithm
    for name in presets(algorithm):
        evidence = evidence_of(algorithm, name)
        if evidence is None:
            without.setdefault(source_of(algorithm, name), []).append(name)
        else:
            yield lead, f"{name}: {evidence}"
            lead = ""
    for source, names in without.items():
        yield lead, f"settings of {source}, no result here: {', '.join(names)}"
        lead = ""


def _list_envs() -> None:
    import gymnasium

    from sharpwave.envs.multi.make import multi_env_ids

    say("environments of Gymnasium")
    for env_id in sorted(gymnasium.registry):
        say(f"  {env_id}")
    say("environments of several agents")
    for env_id in multi_env_ids():
        say(f"  {env_id}")


def _list_tasks() -> None:
    with input_errors():
        tasks = llm.TASKS
    say("tasks of language models")
    for task in tasks.values():
        example = task.prompts(1)[0]
        answer = "" if task.answer is None else f", such as {example}{task.answer(example)}"
        say(_wrapped(task.name, f"{task.says}{answer}"))


def _list_losses() -> None:
    say("losses of language models")
    for name in LANGUAGE_NAMES:
        config: Any = algorithm_class(name).Config
        kinds = ", ".join(choices_of(config.annotations()["loss"]))
        say(_wrapped(name, f"{kinds} (default: {config().loss})"))


def _wrapped(name: str, text: str) -> str:
    """A line of a list, with what does not fit on it below its text."""
    lead = f"  {name:<{max(map(len, algorithm_names()))}}  "
    width = shutil.get_terminal_size().columns
    indent = " " * len(lead)
    return textwrap.fill(
        text, width, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False
    )


def _parser() -> Parser:
    parser = Parser("list", "List algorithms, presets, environments, tasks or losses.")
    parser.add_argument(
        "what",
        nargs="?",
        type=one_of("list", WHAT),
        metavar="|".join(WHAT),
        help="default: algorithms and presets",
    )
    return parser
