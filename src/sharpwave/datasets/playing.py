"""A policy plays, and its episodes come in a fair order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave import envs
from sharpwave.datasets.episode_queue import Episode, EpisodeQueue
from sharpwave.datasets.noise import as_noise
from sharpwave.datasets.parts import Part
from sharpwave.datasets.players import NoisyPlayer, as_player

if TYPE_CHECKING:
    from sharpwave.runs.evaluation import Player

Progress = Callable[[str, int, int], object]
"""Told what is being done, how much of it is done, and of how much (0: unknown)."""


def play(
    env: Any,
    part: Part,
    *,
    env_id: str | None,
    seed: np.random.SeedSequence,
    progress: Progress | None = None,
) -> Iterator[Episode]:
    """Play a policy until its part of a dataset is complete.

    Args:
        env: A vector environment; it is reset first.
        part: The policy, and its number of steps or episodes.
        env_id: The id of the environment, for its scripted expert.
        seed: Random seed of environments, actions and noise.
        progress: Told after each episode.

    Yields:
        Its episodes, in the order in which they began.
    """
    with _few_threads(part.policy):
        yield from _played(env, part, env_id, seed, progress)


def _played(
    env: Any,
    part: Part,
    env_id: str | None,
    seed: np.random.SeedSequence,
    progress: Progress | None,
) -> Iterator[Episode]:
    of_env, of_actions = seed.spawn(2)
    player = _player(env, part, env_id, np.random.Generator(np.random.Philox(of_actions)))
    env_seed = int(of_env.generate_state(1)[0] >> 1)
    stepper = envs.Stepper(env)
    obs, infos = stepper.reset(seed=env_seed)
    starts = np.ones(env.num_envs, np.bool_)
    queue = EpisodeQueue(
        env.num_envs, obs, seed=env_seed, n_episodes=part.n_episodes, n_steps=part.n_steps
    )
    done = 0
    while not queue.complete:
        actions = player.play(obs, starts, envs.action_masks(env, infos))
        step = stepper.step(actions)
        queue.add(actions, step)
        obs, infos = step.obs, step.infos
        starts = stepper.ended
        if stepper.mode == "next_step":
            starts = np.zeros_like(starts) if step.real is None else ~step.real
        for episode in queue.ready():
            done += 1 if part.n_steps is None else len(episode)
            if progress is not None:
                progress(part.policy_name, done, part.count)
            yield episode


def _few_threads(policy: Any) -> contextlib.AbstractContextManager[None]:
    """As many threads of torch as its algorithm trains with."""
    few_threads: contextlib.AbstractContextManager[None] = (
        policy.few_threads() if hasattr(policy, "player") else contextlib.nullcontext()
    )
    return few_threads


def _player(env: Any, part: Part, env_id: str | None, generator: np.random.Generator) -> Player:
    space, n_envs = env.single_action_space, env.num_envs
    noise = as_noise(part.noise, space)
    player = as_player(
        part.policy,
        action_space=space,
        env_id=env_id,
        n_envs=n_envs,
        deterministic=part.deterministic,
        generator=generator,
    )
    return player if noise is None else NoisyPlayer(player, noise, space, n_envs, generator)
