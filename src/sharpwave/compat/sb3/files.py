"""Files of models: checkpoints of this library, with the arguments of SB3's constructor in them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.compat.sb3.arguments import from_json, to_json
from sharpwave.compat.sb3.environments import NoEnvironments
from sharpwave.compat.sb3.refusals import check_names
from sharpwave.envs import space_from_json
from sharpwave.storage.checkpoints import read_checkpoint, read_header, write_checkpoint
from sharpwave.storage.files import reading

if TYPE_CHECKING:
    from sharpwave.compat.sb3.algorithm import Algorithm
    from sharpwave.compat.sb3.environments import Training

__all__ = ["existing", "load", "load_replay", "move", "save", "save_replay"]

ENTRY = "sb3"
"""Of a checkpoint's header: the arguments of the model."""
REPLAY = "replay_buffer"
"""Name of a replay buffer, in the place of an algorithm's."""
MODEL_SUFFIX, REPLAY_SUFFIX = ".zip", ".pkl"
"""That SB3 gives files; here both are checkpoints, without a pickle in them."""


def save(model: Algorithm, path: Any) -> None:
    """Write a model; see `Algorithm.save`."""
    agent = model.agent
    header = {**agent._header(), ENTRY: to_json(model._given)}
    with _to_write(path, MODEL_SUFFIX) as file:
        write_checkpoint(file, header, agent._state())


def load(cls: type[Algorithm], path: Any, env: Any, device: Any, changed: dict[str, Any]) -> Any:
    """Read a model; see `Algorithm.load`."""
    with existing(path, MODEL_SUFFIX) as file:
        if zipfile.is_zipfile(file):
            from sharpwave.compat.sb3.their_files import from_sb3

            return from_sb3(file, env, algorithm=cls, device=device, **changed)
        header = read_header(file)
        saved = header.get(ENTRY)
        if saved is None:
            raise ValueError(
                f"{path} was not written by {__package__}: load it by from_checkpoint of an agent"
            )
        known = cls.__signature__.parameters  # type: ignore[attr-defined]
        check_names(changed, known, cls.__name__)
        with reading(file):
            kept = {name: value for name, value in saved.items() if name not in changed}
            given = {**from_json(kept), **changed, "device": device}
        model: Any = cls(env=_saved_env(header) if env is None else env, **given)
        model.agent._is_another_env = env is not None  # where new episodes begin
        model.agent.load_checkpoint(file)
        model._use(model.agent)
        if isinstance(model._env.for_agent, NoEnvironments):
            model._env = None
        return model


def move(model: Algorithm, env: Training) -> None:
    """Let a model go on in other environments, with all that it has learned and stored."""
    old = model.agent
    with old.loop.keeping_all():
        state = old._state()
    options = {**model._agent_options(env), "seed": old.seed}
    agent = model.Agent(env.for_agent, **options)
    agent._is_another_env = True  # so that new episodes begin
    agent._load_state(state)
    model._env = env
    model._use(agent)


def save_replay(model: Algorithm, path: Any) -> None:
    """Write the replay buffer of a model."""
    store = model.agent.loop.store
    with store.keeping_all():
        state = store.state_dict()
    with _to_write(path, REPLAY_SUFFIX) as file:
        write_checkpoint(file, {"algorithm": REPLAY}, {"buffer": state})


def load_replay(model: Algorithm, path: Any) -> None:
    """Read a replay buffer into a model.

    Raises:
        ValueError: The file holds something else.
    """
    with existing(path, REPLAY_SUFFIX) as file:
        header, state = read_checkpoint(file)
        if header.get("algorithm") != REPLAY:
            raise ValueError(f"{path} holds {header.get('algorithm')!r}, not a replay buffer")
        loop = model.agent.loop
        loop.store.load_state_dict(state["buffer"], str(path))
        loop._sampler = None
        _ = loop.buffer


def _saved_env(header: dict[str, Any]) -> Any:
    """The environment that a checkpoint names, or only its spaces."""
    named = header["env"]
    if named is not None and not named["kwargs"] and "wrappers" not in named:
        return named["id"]
    spaces = [space_from_json(header[f"{name}_space"]) for name in ("observation", "action")]
    return NoEnvironments(spaces[0], spaces[1], int(header["config"]["n_envs"]))


@contextlib.contextmanager
def _to_write(path: Any, suffix: str) -> Iterator[Path]:
    """A file to write: one with a suffix, or one whose content goes to an open file."""
    if not hasattr(path, "write"):
        file = Path(path)
        file = file if file.suffix else file.with_name(file.name + suffix)
        file.parent.mkdir(parents=True, exist_ok=True)
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        yield file
        path.write(file.read_bytes())


@contextlib.contextmanager
def existing(path: Any, suffix: str) -> Iterator[Path]:
    """The file that a program names with its suffix or without, or the content of an open one.

    Raises:
        FileNotFoundError: There is none.
    """
    if not hasattr(path, "read"):
        file = Path(os.fspath(path))
        with_suffix = file.with_name(file.name + suffix)
        yield with_suffix if not file.exists() and with_suffix.exists() else file
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        file.write_bytes(path.read())
        yield file
