"""Files as an attacker, or a bug, would write them: whole and signed, with other content."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint

MODULE = """
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

Path({mark!r}).touch()
gymnasium.register("{env}", entry_point=CartPoleEnv, max_episode_steps=50)


class Wrapper(gymnasium.Wrapper):
    pass
"""


def write_module(folder: Path, name: str, env: str = "Forged-v0") -> Path:
    """Write a module that registers an environment; the file that shows that it was imported."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f"{name}_was_imported"
    text = textwrap.dedent(MODULE).format(mark=str(mark), env=env)
    (folder / f"{name}.py").write_text(text)
    return mark


def change_header(path: Path, **changes: Any) -> None:
    """Give a checkpoint other entries in its header, and the checksum of that."""
    header, state = read_checkpoint(path)
    write_checkpoint(path, {**header, **changes}, state)
