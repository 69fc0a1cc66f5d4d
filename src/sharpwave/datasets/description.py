"""Description of how a dataset on disk was made, in a file beside its episodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sharpwave.datasets.scores import episode_returns, find_reference, normalized_score
from sharpwave.storage.files import read_json, write_json

__all__ = ["read_description", "write_description"]

FILE = "dataset.json"
LIBRARIES = ("sharpwave", "gymnasium", "mujoco", "numpy", "torch")


def write_description(
    folder: str | os.PathLike[str], env_id: str | None, facts: Mapping[str, Any]
) -> None:
    """Write `dataset.json` into a folder of episodes.

    Args:
        folder: It has a field reward.
        env_id: Id of the environment of the episodes.
        facts: How they came about. What can be counted is added: episodes, steps, mean return, its
            normalized score, and versions of the libraries.
    """
    from sharpwave.episodes import EpisodeBuffer

    with EpisodeBuffer.from_folder(folder, read_only=True) as buffer:
        lengths, returns = buffer.episodes().lengths, episode_returns(buffer)
    mean = float(returns.mean())
    counted = {
        "n_episodes": len(lengths),
        "n_steps": int(lengths.sum()),
        "mean_return": mean,
        "std_return": float(returns.std()),
        "score": normalized_score(env_id, mean) if env_id and find_reference(env_id) else None,
    }
    versions = {name: _version(name) for name in LIBRARIES}
    write_json(Path(folder) / FILE, {"env_id": env_id, **facts, **counted, "versions": versions})


def read_description(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The entries of `dataset.json`: env_id, kind, seed, parts, n_episodes, mean_return, ...

    Returns:
        It; empty where there is none.
    """
    return read_json(Path(folder) / FILE)


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
