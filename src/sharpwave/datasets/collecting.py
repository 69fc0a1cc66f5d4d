"""Datasets that policies play."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from sharpwave import envs
from sharpwave.datasets.action_noise import Noise
from sharpwave.datasets.parts import Part
from sharpwave.datasets.playing import Progress, play
from sharpwave.datasets.sinks import Arrays, EpisodeArrays, EpisodeFolder, Sink

if TYPE_CHECKING:
    from sharpwave.episodes import EpisodeBuffer

__all__ = ["collect"]

MOST_ENVS = 8


@overload
def collect(
    env: Any,
    policy: Any = ...,
    n_steps: int | None = ...,
    n_episodes: int | None = ...,
    *,
    folder: None = ...,
    noise: float | Noise | None = ...,
    deterministic: bool = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    progress: Progress | None = ...,
) -> Arrays: ...


@overload
def collect(
    env: Any,
    policy: Any = ...,
    n_steps: int | None = ...,
    n_episodes: int | None = ...,
    *,
    folder: str | os.PathLike[str],
    noise: float | Noise | None = ...,
    deterministic: bool = ...,
    n_envs: int | None = ...,
    seed: int = ...,
    progress: Progress | None = ...,
) -> EpisodeBuffer: ...


def collect(
    env: Any,
    policy: Any = "random",
    n_steps: int | None = None,
    n_episodes: int | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    noise: float | Noise | None = None,
    deterministic: bool = True,
    n_envs: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Arrays | EpisodeBuffer:
    """Play a policy and keep what happened.

    Several environments play side by side, and their episodes count in the order in which they
    began: the dataset is as fair a sample as if one environment had played it. The last step of an
    episode has its true flags, and the observation it led to is the true last one; the episode that
    `n_steps` cuts is truncated there.

    Args:
        env: An id, an environment, a function that makes one, or a vector environment.
        policy: "random"; "expert", the scripted one; an algorithm; or a function from observations
            [N, ...] to actions [N, ...] as the environment takes them.
        n_steps: Steps of the dataset, exactly. Either this or `n_episodes`.
        n_episodes: Whole episodes of the dataset.
        folder: Where an `EpisodeBuffer` goes; one that holds episodes of the same fields is
            continued. Without it the dataset stays in memory.
        noise: A `GaussianNoise` or an `EpsilonNoise` on the actions; a number stands for the first
            in a Box of actions, for the second elsewhere.
        deterministic: An algorithm plays the mode of its policy, not samples of it. Those come from
            its own generator, not from `seed`.
        n_envs: Environments that play side by side; by default up to 8, as episodes are needed.
        seed: Random seed of environments, actions and noise; the dataset is deterministic given the
            seed and `n_envs`.
        progress: Called with the name of the policy, the steps (or episodes) so far, and their
            number.

    Returns:
        With a folder the `EpisodeBuffer`, which has the fields of `RecordEpisodes`. Without one the
        arguments of `OfflineDatasetBuffer`: obs, next_obs, actions, rewards, terminated and
        truncated, [n, ...] each, episode after episode.

    Raises:
        TypeError, ValueError: An argument does not fit.
        EnvironmentFailed: An environment raised.

    Example:
        >>> import sharpwave as sw
        >>> data = collect("CartPole-v1", "expert", 1000, noise=0.1, seed=3)
        >>> data["obs"].shape, data["actions"].shape, data["rewards"].sum()
        ((1000, 4), (1000,), np.float64(1000.0))
        >>> len(sw.OfflineDatasetBuffer(**data))
        1000
        >>> with collect("CartPole-v1", n_episodes=5, folder="random") as episodes:
        ...     episodes.num_episodes
        5
    """
    part = Part(policy, n_steps, n_episodes, noise, deterministic)
    sink = EpisodeArrays() if folder is None else EpisodeFolder(folder)
    fill(sink, env, [part], n_envs=n_envs, seed=seed, progress=progress)
    return sink.result()


def env_id_of(env: Any) -> str | None:
    """The id of an environment, if it has one."""
    return env if isinstance(env, str) else getattr(getattr(env, "spec", None), "id", None)


def fill(
    sink: Sink,
    env: Any,
    parts: Sequence[Part],
    *,
    n_envs: int | None,
    seed: int,
    progress: Progress | None,
) -> None:
    """Play all parts in order; the arguments are those of `mixture`."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed!r}")
    if n_envs is None and isinstance(env, str):
        n_envs = min(MOST_ENVS, max(_n_episodes(env, part) for part in parts))
    seeds = np.random.SeedSequence(int(seed)).spawn(len(parts))
    vector_env = envs.make_vec_env(env, n_envs)
    env_id = env_id_of(env)
    try:
        with sink.opened(vector_env):
            for part, of_part in zip(parts, seeds, strict=True):
                for episode in play(
                    vector_env, part, env_id=env_id, seed=of_part, progress=progress
                ):
                    sink.add(episode)
    finally:
        if isinstance(env, str | type) or not hasattr(env, "step"):
            vector_env.close()


def _n_episodes(env_id: str, part: Part) -> int:
    """Episodes that a part has at least."""
    import gymnasium as gym

    if part.n_episodes is not None:
        return part.n_episodes
    spec = gym.registry.get(env_id)
    longest = None if spec is None else spec.max_episode_steps
    return 1 if longest is None else max(1, part.count // longest)
