"""Datasets of several policies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

from sharpwave.datasets.collecting import env_id_of, fill
from sharpwave.datasets.description import write_description
from sharpwave.datasets.parts import Part
from sharpwave.datasets.playing import Progress
from sharpwave.datasets.sinks import Arrays, EpisodeArrays, EpisodeFolder
from sharpwave.episodes import EpisodeBuffer
from sharpwave.episodes.folder_format import new_folder

__all__ = ["mixture"]


@overload
def mixture(
    env: Any,
    parts: Sequence[Part],
    folder: None = ...,
    *,
    kind: str | None = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> Arrays: ...


@overload
def mixture(
    env: Any,
    parts: Sequence[Part],
    folder: str | os.PathLike[str],
    *,
    kind: str | None = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> EpisodeBuffer: ...


def mixture(
    env: Any,
    parts: Sequence[Part],
    folder: str | os.PathLike[str] | None = None,
    *,
    kind: str | None = None,
    n_envs: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Arrays | EpisodeBuffer:
    """A dataset of several policies, one after another.

    Args:
        env: As for `collect`.
        parts: Parts of the dataset, one for each policy.
        folder: Where an `EpisodeBuffer` goes, whole or not at all, with `dataset.json`, which says
            how it was made. Without it the dataset stays in memory.
        kind: Name of the mixture in `dataset.json`.
        n_envs: As for `collect`.
        seed: The same seed gives the same dataset. Every part has random numbers of its own.
        overwrite: Replace a folder of episodes.
        progress: As for `collect`.

    Returns:
        As `collect`.

    Raises:
        TypeError, ValueError: An argument does not fit.
        EnvironmentFailed: An environment raised.
        SharpwaveIOError: There is something at `folder`.

    Example:
        >>> parts = [Part("expert", n_episodes=4, noise=1.0), Part("random", n_episodes=6)]
        >>> mixture("Pendulum-v1", parts, seed=1)["obs"].shape
        (2000, 3)
    """
    if not parts:
        raise ValueError("parts must hold at least one part, got none")
    if folder is None:
        sink = EpisodeArrays()
        fill(sink, env, parts, n_envs=n_envs, seed=seed, progress=progress)
        return sink.result()
    with new_folder(folder, overwrite=overwrite) as made:
        fill(EpisodeFolder(made), env, parts, n_envs=n_envs, seed=seed, progress=progress)
        facts = {"kind": kind, "seed": seed, "parts": [part.to_json() for part in parts]}
        write_description(made, env_id_of(env), facts)
    return EpisodeBuffer.from_folder(folder)
