"""Datasets by name, played by scripted experts and mixtures of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np

from sharpwave.core.suggest import did_you_mean
from sharpwave.datasets.action_noise import EpsilonNoise, Noise
from sharpwave.datasets.collecting import env_id_of, fill
from sharpwave.datasets.description import write_description
from sharpwave.datasets.experts import expert
from sharpwave.datasets.parts import Part
from sharpwave.datasets.playing import Progress
from sharpwave.datasets.sinks import Arrays, EpisodeArrays, EpisodeFolder
from sharpwave.episodes import EpisodeBuffer
from sharpwave.episodes.folder_format import new_folder

__all__ = ["KINDS", "make_dataset", "mixture", "parts_of"]

KINDS = {
    "random": "uniformly random actions",
    "medium": "the expert with so many random actions that it scores about 50",
    "expert": "the expert",
    "noisy": "the expert with noise of a quarter of the range of actions, or a quarter at random",
    "mixed": "40 % noisy, 60 % random: rewards tell good from bad, imitation does not",
    "medium-replay": "from random to medium in ten steps, as a replay buffer has it",
    "medium-expert": "half medium, half expert",
}
"""Content of each kind of dataset, in words."""


class Levels(NamedTuple):
    """Amounts of noise that degrade the scripted expert."""

    noisy: float
    """The standard deviation in a Box of actions, a quarter of its range; elsewhere the share of
    random actions, a quarter."""
    medium: float
    """The share of random actions with which the expert scores about 50."""


LEVELS = {
    "CartPole-v1": Levels(0.25, 0.42),
    "Pendulum-v1": Levels(1.0, 0.65),
    "MountainCar-v0": Levels(0.25, 0.25),
    "MountainCarContinuous-v0": Levels(0.5, 0.7),
    "Acrobot-v1": Levels(0.25, 0.77),
    "LunarLander-v3": Levels(0.25, 0.3),
    "LunarLanderContinuous-v3": Levels(0.5, 0.4),
}

REPLAY_STAGES = 10


@overload
def make_dataset(
    env_id: str,
    kind: str,
    folder: None = ...,
    *,
    n_steps: int = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> Arrays: ...


@overload
def make_dataset(
    env_id: str,
    kind: str,
    folder: str | os.PathLike[str],
    *,
    n_steps: int = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    overwrite: bool = ...,
    progress: Progress | None = ...,
) -> EpisodeBuffer: ...


def make_dataset(
    env_id: str,
    kind: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    n_steps: int = 20_000,
    n_envs: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Arrays | EpisodeBuffer:
    """A dataset for offline learning in seconds, without training anything.

    Args:
        env_id: One of `expert_ids()`; for random data any environment.
        kind: One of `KINDS`.
        folder: Where an `EpisodeBuffer` goes, whole or not at all, with `dataset.json`, which says
            how it was made. Without it the dataset stays in memory.
        n_steps: Steps of the dataset, exactly.
        n_envs: Environments that play side by side; by default up to 8.
        seed: The same seed gives the same dataset.
        overwrite: Replace a folder of episodes.
        progress: As for `collect`.

    Returns:
        As `collect`.

    Raises:
        ValueError: There is no such kind, or no scripted expert for the environment.
        SharpwaveIOError: There is something at `folder`.

    Example:
        >>> data = make_dataset("Pendulum-v1", "mixed", n_steps=2000)
        >>> data["rewards"].shape
        (2000,)
    """
    return mixture(
        env_id,
        parts_of(env_id, kind, n_steps),
        folder,
        kind=kind,
        n_envs=n_envs,
        seed=seed,
        overwrite=overwrite,
        progress=progress,
    )


def parts_of(env_id: str, kind: str, n_steps: int) -> list[Part]:
    """The parts of a dataset of a kind.

    Raises:
        ValueError: There is no such kind, or no scripted expert for the environment.

    Example:
        >>> [(part.policy, part.n_steps) for part in parts_of("Pendulum-v1", "mixed", 20_000)]
        [('expert', 8000), ('random', 12000)]
    """
    if kind not in KINDS:
        raise ValueError(
            f"unknown kind {kind!r}{did_you_mean(kind, KINDS)} (there are {', '.join(KINDS)})"
        )
    stages = [Stage(1.0)] if kind == "random" else _stages(kind, _levels(env_id))
    ends = np.rint(np.cumsum([stage.share for stage in stages]) * n_steps).astype(int)
    counts = np.diff(ends, prepend=0).tolist()
    return [
        Part(stage.policy, count, noise=stage.noise)
        for stage, count in zip(stages, counts, strict=True)
        if count
    ]


@dataclass(frozen=True)
class Stage:
    """A share of a dataset."""

    share: float
    policy: str = "random"
    noise: float | Noise | None = None


def _stages(kind: str, levels: Levels) -> list[Stage]:
    medium = EpsilonNoise(levels.medium)
    if kind == "expert":
        return [Stage(1.0, "expert")]
    if kind == "noisy":
        return [Stage(1.0, "expert", levels.noisy)]
    if kind == "mixed":
        return [Stage(0.4, "expert", levels.noisy), Stage(0.6)]
    if kind == "medium":
        return [Stage(1.0, "expert", medium)]
    if kind == "medium-expert":
        return [Stage(0.5, "expert", medium), Stage(0.5, "expert")]
    share = 1 / REPLAY_STAGES
    falling = np.linspace(1, levels.medium, REPLAY_STAGES).tolist()
    return [Stage(share, "expert", EpsilonNoise(epsilon)) for epsilon in falling]


def _levels(env_id: str) -> Levels:
    expert(env_id)  # which says what there is
    return LEVELS[env_id]


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
