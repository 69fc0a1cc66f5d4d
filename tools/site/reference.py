"""The reference: a page for each algorithm, and for what belongs together of everything else."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import sharpwave as sw
from sharpwave.agents import Agent
from sharpwave.algorithms.registry import algorithm_class, algorithm_names
from sharpwave.config.config import Config
from tools.site import markup

SUBJECTS: dict[str, tuple[str, ...]] = {
    "Agents and runs": (
        *("sharpwave.Agent", "sharpwave.agents.OnlineAgent", "sharpwave.OfflineAlgorithm"),
        *("sharpwave.agents.multi.MultiAgent", "sharpwave.agents.language.LanguageAgent"),
        "sharpwave.agents.language.OnlineLanguageAgent",
        "sharpwave.agents.language_offline.OfflineLanguageAgent",
        *("sharpwave.Trainer", "sharpwave.load_run", "sharpwave.Linear"),
        *("sharpwave.config.config.Config", "sharpwave.Learner", "sharpwave.Acted"),
    ),
    "Learners of PPO": (
        *("sharpwave.CuriousPPOLearner", "sharpwave.Curiosity", "sharpwave.SymmetricPPOLearner"),
        "sharpwave.DistillationLearner",
    ),
    "Tuning": ("sharpwave.tune", "sharpwave.Tuned", "sharpwave.tuning"),
    "Callbacks": (
        *("sharpwave.Callback", "sharpwave.CheckpointCallback", "sharpwave.EvalCallback"),
        *("sharpwave.EarlyStoppingCallback", "sharpwave.StopOnReturn", "sharpwave.VideoCallback"),
        *("sharpwave.ProgressCallback", "sharpwave.RayEvalCallback"),
        "sharpwave.runs.callbacks",
    ),
    "Loggers": (
        *("sharpwave.ConsoleLogger", "sharpwave.CSVLogger", "sharpwave.JSONLLogger"),
        *("sharpwave.TensorBoardLogger", "sharpwave.WandbLogger", "sharpwave.MLflowLogger"),
        *("sharpwave.LoggerCallback", "sharpwave.runs.loggers"),
    ),
    "Environments": (
        *("sharpwave.make_vec_env", "sharpwave.VecNormalize", "sharpwave.NativeCollector"),
        *("sharpwave.CandleCollector", "sharpwave.envs", "sharpwave.envs.multi"),
    ),
    "Replay buffers": (
        *("sharpwave.ReplayBuffer", "sharpwave.PrioritizedReplayBuffer"),
        *("sharpwave.MmapReplayBuffer", "sharpwave.OfflineDatasetBuffer"),
        *("sharpwave.OfflineMixture", "sharpwave.VectorWriter", "sharpwave.Batch"),
        *("sharpwave.Schema", "sharpwave.Field"),
    ),
    "Selectors and views": (
        *("sharpwave.Uniform", "sharpwave.Prioritized", "sharpwave.Recent", "sharpwave.Fresh"),
        *("sharpwave.WithoutReplacement", "sharpwave.Where", "sharpwave.Mixture"),
        *("sharpwave.Transition", "sharpwave.NStep", "sharpwave.Sequence", "sharpwave.Hindsight"),
    ),
    "Tensors on a device": (
        *("sharpwave.TensorReplayBuffer", "sharpwave.TensorPrioritizedReplayBuffer"),
        *("sharpwave.RolloutBuffer", "sharpwave.SharedReplayBuffer", "sharpwave.StatsTracker"),
        *("sharpwave.ResetStrategy", "sharpwave.tensors.buffers", "sharpwave.tensors"),
    ),
    "Episodes on disk": (
        *("sharpwave.EpisodeBuffer", "sharpwave.EpisodeDataset", "sharpwave.EpisodeLoader"),
        *("sharpwave.EpisodeUnion", "sharpwave.RecordEpisodes", "sharpwave.RecordVectorEpisodes"),
        *("sharpwave.RecordTeamEpisodes", "sharpwave.episodes", "sharpwave.formats"),
    ),
    "Datasets": ("sharpwave.OfflineDataset", "sharpwave.datasets"),
    "Primitives": ("sharpwave.primitives",),
    "Networks": ("sharpwave.nn",),
    "Losses": ("sharpwave.losses",),
    "Language models": ("sharpwave.BestOfN", "sharpwave.BestOfNResult", "sharpwave.llm"),
    "Many machines": (
        *("sharpwave.ShardedReplay", "sharpwave.distributed.replay", "sharpwave.distributed"),
    ),
    "Checks and errors": (
        *("sharpwave.testing", "sharpwave.SharpwaveIOError", "sharpwave.FolderLockedError"),
    ),
}
"""Names by subject; the name of a room stands for all that it exports and nobody named before."""

INTRODUCTION = """\
Reference
=========

Every public name, from the docstrings that ``help()`` shows. What is ``sharpwave.PPO`` here is
``sw.PPO`` in the other pages, after ``import sharpwave as sw``. Each algorithm has a page with all
its options.

.. toctree::
   :caption: Algorithms
   :maxdepth: 1

{algorithms}

.. toctree::
   :caption: Everything else
   :maxdepth: 1

{subjects}
"""


def pages() -> dict[str, str]:
    """The pages by file, as reStructuredText."""
    algorithms = {f"reference/{name}.rst": _algorithm(name) for name in library_names()}
    subjects = {f"reference/{_file(title)}.rst": _subject(title) for title in SUBJECTS}
    index = INTRODUCTION.format(
        algorithms="\n".join(f"   {name}" for name in library_names()),
        subjects="\n".join(f"   {_file(title)}" for title in SUBJECTS),
    )
    return {"reference/index.rst": index, **algorithms, **subjects}


@cache
def documented() -> dict[str, str]:
    """Last parts of all names that have an entry, and the whole names."""
    algorithms = [name for each in library_names() for name in _algorithm_names(each)]
    others = [name for title in SUBJECTS for name in names_of(title)]
    found: dict[str, str] = {}
    for name in (*algorithms, *others):
        found.setdefault(name.rpartition(".")[2], name)
    return found


@cache
def library_names() -> list[str]:
    """The names of the algorithms of this library, without those that somebody registered."""
    return [name for name in algorithm_names() if _is_ours(algorithm_class(name))]


def _is_ours(agent: type[Agent]) -> bool:
    return agent.__module__.startswith("sharpwave.")


def names_of(title: str) -> list[str]:
    """The whole names of a subject."""
    return _names_by_subject()[title]


@cache
def _names_by_subject() -> dict[str, list[str]]:
    """The names of each subject: of a room those whose objects nobody named before."""
    listed = [name for names in SUBJECTS.values() for name in names if not _is_room(name)]
    algorithms = [name for each in library_names() for name in _algorithm_names(each)]
    said = {id(value_of(name)) for name in (*listed, *algorithms)}
    found: dict[str, list[str]] = {}
    for title, names in SUBJECTS.items():
        found[title] = []
        for name in names:
            exported = _exports(name) if _is_room(name) else [name]
            new = [each for each in exported if each == name or id(value_of(each)) not in said]
            said.update(id(value_of(each)) for each in new)
            found[title] += new
    return found


def _algorithm(name: str) -> str:
    agent = algorithm_class(name)
    return _heading(agent.__name__) + "".join(map(_entry, _algorithm_names(name)))


def _algorithm_names(name: str) -> list[str]:
    title = algorithm_class(name).__name__
    own = (title, f"{title}Config", f"{title}Learner")
    return [f"sharpwave.{each}" for each in own if each in sw.__all__]


def _subject(title: str) -> str:
    return _heading(title) + "".join(map(_entry, names_of(title)))


def _exports(room: str) -> list[str]:
    return [_shortest(room, name) for name in importlib.import_module(room).__all__]


def _shortest(room: str, name: str) -> str:
    """The name by which users reach it: of the package where it is there too."""
    same = name in sw.__all__ and getattr(sw, name) is getattr(importlib.import_module(room), name)
    return f"sharpwave.{name}" if same else f"{room}.{name}"


def _is_room(name: str) -> bool:
    return inspect.ismodule(value_of(name))


def value_of(name: str) -> Any:
    """The object of a whole name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        room, _, last = name.rpartition(".")
        return getattr(importlib.import_module(room), last)


def _entry(name: str) -> str:
    value = value_of(name)
    if inspect.isclass(value) and issubclass(value, Agent) and value is not Agent:
        methods = _own_methods(value)
        members = f"   :members: {methods}\n" if methods else ""
        return f"\n.. autoclass:: {name}\n{members}   :show-inheritance:\n"
    if inspect.isclass(value):
        # The fields of a configuration get entries of their own, those of its bases too.
        members = "" if issubclass(value, Config) and value is not Config else "   :members:\n"
        return f"\n.. autoclass:: {name}\n{members}   :show-inheritance:\n"
    if callable(value):
        return f"\n.. autofunction:: {name}\n"
    return _data(name, value)


def _own_methods(agent: type[Agent]) -> str:
    """The methods that a class of agents has beside those of its bases.

    The other attributes are how an algorithm names its parts, and of no use to callers.
    """
    kinds = (property, classmethod, staticmethod)
    return ", ".join(
        name
        for name, value in vars(agent).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    )


def _data(name: str, value: Any) -> str:
    """The entry of a constant, with the docstring under it and the keys of a table."""
    keys = ", ".join(f"``{key}``" for key in value) if isinstance(value, Mapping) else ""
    lines = markup.restructured(_docstring_under(name).splitlines())
    lines += ["", f"Keys: {keys}."] if keys else []
    body = "\n".join(f"   {line}" for line in lines)
    return f"\n.. py:data:: {name}\n\n{body}\n"


def _docstring_under(name: str) -> str:
    """The docstring under the assignment of a constant, in whatever file of its room that is."""
    room, _, last = name.rpartition(".")
    folder = Path(importlib.import_module(room).__path__[0])
    for path in sorted(folder.rglob("*.py")):
        for assigned, below in pairwise(ast.parse(path.read_text()).body):
            targets = assigned.targets if isinstance(assigned, ast.Assign) else []
            targets += [assigned.target] if isinstance(assigned, ast.AnnAssign) else []
            named = any(isinstance(target, ast.Name) and target.id == last for target in targets)
            value = below.value if isinstance(below, ast.Expr) else None
            if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
                return inspect.cleandoc(value.value)
    return ""


def _heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n"


def _file(title: str) -> str:
    return title.lower().replace(" ", "_")


def missing(names: Iterable[str] = sw.__all__) -> set[str]:
    """The names of the package that have no entry."""
    entries = set(documented().values())
    return {
        name
        for name in names
        if f"sharpwave.{name}" not in entries and not inspect.ismodule(getattr(sw, name))
    }
