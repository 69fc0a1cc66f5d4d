"""Datasets by the protocol of D4RL: what an agent does before, while and after it learns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sharpwave.core.suggest import did_you_mean
from sharpwave.datasets.collecting import collect, fill
from sharpwave.datasets.description import write_description
from sharpwave.datasets.parts import Part
from sharpwave.datasets.playing import Progress
from sharpwave.datasets.recorded_run import Improvement, RecordedRun
from sharpwave.datasets.scores import episode_returns
from sharpwave.datasets.sinks import EpisodeFolder
from sharpwave.episodes import EpisodeBuffer, EpisodeSchema
from sharpwave.episodes.folder_format import new_folder, stream_of, write
from sharpwave.episodes.record import UNLIMITED
from sharpwave.formats.stream import Episode, EpisodeStream
from sharpwave.runs.callbacks import Callback

__all__ = ["TRAINED_KINDS", "record_training"]

TRAINED_KINDS = {
    "random": "uniformly random actions",
    "medium": "a policy whose return is a third of the way from random to the best",
    "medium-replay": "the episodes of training until then",
    "medium-expert": "half medium, half expert",
    "expert": "the policy that evaluated best",
    "full-replay": "all episodes of training",
}
"""Content of each kind of dataset, in words."""

D4RL = ("random", "medium", "medium-replay", "expert")
REPLAYS = ("medium-replay", "full-replay")
N_RANDOM_EPISODES = 20


def record_training(
    env_id: str,
    folder: str | os.PathLike[str],
    kinds: Sequence[str] = D4RL,
    *,
    algorithm: str = "sac",
    total_timesteps: int | None = None,
    n_steps: int = 200_000,
    medium: float = 1 / 3,
    eval_freq: int = 10_000,
    n_eval_episodes: int = 10,
    seed: int = 0,
    callbacks: Callback | Iterable[Callback] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Path]:
    """Train an agent and make datasets of it, by the protocol of D4RL.

    Every kind becomes a folder of `EpisodeBuffer` with `dataset.json`, which says how it was made;
    the run is in `training`. Policies play samples, as they explore. A call that was interrupted is
    taken up by the same call: training goes on from its last checkpoint, and datasets that are
    there stay. So does a call with more kinds, or more steps of training.

    Args:
        env_id: A Gymnasium id.
        folder: Folder of the run and the datasets.
        kinds: Kinds of datasets, of `TRAINED_KINDS`.
        algorithm: Name of the algorithm. Its preset for the environment is used if there is one.
        total_timesteps: Environment steps of training; what the preset or the configuration says
            when None.
        n_steps: Steps of each dataset that a policy plays.
        medium: How far from random to expert the medium policy is: the first to evaluate at
            random + medium · (expert - random).
        eval_freq: Environment steps between two evaluations.
        n_eval_episodes: Episodes of an evaluation.
        seed: Random seed of training and datasets.
        callbacks: Called during training.
        progress: Told what is being done, how far it is, and how far it will go.
        **options: Options of the algorithm.

    Returns:
        The folder of each kind.

    Raises:
        TypeError, ValueError: An argument does not fit.
        TrainingStopped: A signal or a callback stopped the training.

    Example:
        >>> folders = record_training(
        ...     "Pendulum-v1", "pendulum", total_timesteps=600, n_steps=400, eval_freq=300,
        ...     n_eval_episodes=2, learning_starts=200, log_interval=100, hidden=(16, 16),
        ... )
        >>> list(folders)
        ['random', 'medium', 'medium-replay', 'expert']
    """
    _check(kinds, medium)
    folder = Path(folder)
    run = RecordedRun(
        env_id,
        folder / "training",
        algorithm,
        seed=seed,
        total_timesteps=total_timesteps,
        options=options,
    )
    if set(kinds) - {"random"}:
        run.train(
            eval_freq=eval_freq,
            n_eval_episodes=n_eval_episodes,
            callbacks=callbacks,
            progress=progress,
        )
    for kind in kinds:
        if (folder / kind).exists():
            continue
        with new_folder(folder / kind, overwrite=False) as made:
            policies = _policies(run, kind, medium, seed)
            if kind in REPLAYS:
                _write_replay(made, run, policies)
            else:
                parts = _parts(run, policies, n_steps)
                of_kind = _seed(seed, kind)
                fill(
                    EpisodeFolder(made), env_id, parts, n_envs=None, seed=of_kind, progress=progress
                )
            _describe(made, run, kind, policies)
    return {kind: folder / kind for kind in kinds}


def _policies(run: RecordedRun, kind: str, medium: float, seed: int) -> list[Improvement]:
    """The policies that a kind is about, in order."""
    if kind in ("random", "full-replay"):
        return []
    found = run.improvements
    best = found[-1]
    if kind == "expert":
        return [best]
    random = collect(run.env_id, n_episodes=N_RANDOM_EPISODES, seed=_seed(seed, "medium"))
    lowest = float(episode_returns(random).mean())
    wanted = lowest + medium * (best.mean - lowest)
    first = next(one for one in found if one.mean >= wanted or one is best)
    return [first, best] if kind == "medium-expert" else [first]


def _parts(run: RecordedRun, policies: list[Improvement], n_steps: int) -> list[Part]:
    if not policies:
        return [Part("random", n_steps)]
    ends = np.linspace(0, n_steps, len(policies) + 1).astype(int)
    return [
        Part(run.player_of(policy), count, deterministic=False)
        for policy, count in zip(policies, np.diff(ends).tolist(), strict=True)
    ]


def _write_replay(folder: Path, run: RecordedRun, policies: list[Improvement]) -> None:
    """The episodes of training, all of them or those before a policy."""
    with EpisodeBuffer.from_folder(run.episodes, read_only=True) as buffer:
        recorded = stream_of(buffer)
        n = max(1, policies[0].n_episodes) if policies else len(recorded)
        meta_fields = dict(recorded.schema.meta_fields)
        del meta_fields["env"]  # datasets that policies play have none

        def episodes() -> Iterator[Episode]:
            for episode in islice(recorded, n):
                yield Episode(episode.steps, {name: episode.meta[name] for name in meta_fields})

        schema = EpisodeSchema(recorded.schema.fields, meta_fields)
        stream = EpisodeStream(recorded.origin, schema, recorded.lengths[:n], episodes)
        write(stream, folder, max_episodes=UNLIMITED, max_timesteps=UNLIMITED)


def _describe(folder: Path, run: RecordedRun, kind: str, policies: list[Improvement]) -> None:
    facts: dict[str, Any] = {"kind": kind, "seed": run.config.seed}
    if kind != "random":
        facts["algorithm"] = run.algorithm.name
        config = run.config.to_dict()
        facts["config"] = {name: config[name] for name in config if name != "buffer"}  # a path here
        facts["policies"] = [{"step": one.step, "mean_return": one.mean} for one in policies]
    write_description(folder, run.env_id, facts)


def _seed(seed: int, kind: str) -> int:
    """Every kind has random numbers of its own."""
    number = list(TRAINED_KINDS).index(kind)
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


def _check(kinds: Sequence[str], medium: float) -> None:
    if isinstance(kinds, str):
        raise TypeError(f"kinds must be a list of kinds, got {kinds!r}")
    for kind in kinds:
        if kind not in TRAINED_KINDS:
            raise ValueError(
                f"unknown kind {kind!r}{did_you_mean(kind, TRAINED_KINDS)} "
                f"(there are {', '.join(TRAINED_KINDS)})"
            )
    if not 0 <= medium <= 1:
        raise ValueError(f"medium must be between 0 and 1, got {medium}")
