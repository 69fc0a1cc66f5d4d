"""Policies play, and their episodes come in a fair order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from sharpwave import envs
from sharpwave.datasets.action_noise import Noise, as_noise
from sharpwave.datasets.episode_queue import CollectedEpisode, EpisodeQueue
from sharpwave.datasets.experts import expert
from sharpwave.datasets.parts import Part
from sharpwave.loops.random_actions import RandomActions
from sharpwave.types import Array, Nested

if TYPE_CHECKING:
    from sharpwave.runs.evaluation import Player


class RandomPlayer:
    """Draws actions uniformly from the action space, from those that a mask allows.

    Args:
        action_space: Action space of one environment.
        n_envs: N.
        generator: Random generator.
    """

    def __init__(self, action_space: Any, n_envs: int, generator: np.random.Generator) -> None:
        seed = int(generator.integers(2**31))
        self._space = action_space
        self._batch_space = batch_space(action_space, n_envs)
        self._batch_space.seed(seed)
        self._allowed = RandomActions(action_space, seed)

    def play(self, obs: Nested, starts: Array, masks: Array | None = None) -> Array:  # noqa: ARG002
        """Actions [N, ...], whatever the observations."""
        if masks is not None and not isinstance(self._space, spaces.MultiBinary):
            return self._allowed.draw(len(masks), masks)
        actions: Array = self._batch_space.sample()
        return actions if masks is None else actions * masks.reshape(actions.shape)


class FunctionPlayer:
    """Asks a function of the observations [N, ...] alone."""

    def __init__(self, function: Callable[[Nested], Any], action_space: Any) -> None:
        self._function = function
        self._space = action_space

    def play(self, obs: Nested, starts: Array, masks: Array | None = None) -> Array:  # noqa: ARG002
        """Its actions [N, ...], inside the bounds of a Box."""
        return within(self._space, np.asarray(self._function(obs)))


class NoisyPlayer:
    """Another player with noise on its actions."""

    def __init__(
        self,
        player: Player,
        noise: Noise,
        action_space: Any,
        n_envs: int,
        generator: np.random.Generator,
    ) -> None:
        self._player = player
        self._noise = noise
        self._space = action_space
        self._generator = generator
        self._random = RandomPlayer(action_space, n_envs, generator)

    def play(self, obs: Nested, starts: Array, masks: Array | None = None) -> Array:
        """Noisy actions [N, ...], inside the bounds of a Box."""
        actions = np.asarray(self._player.play(obs, starts, masks))
        noisy = self._noise.apply(
            actions, self._generator, lambda: self._random.play(obs, starts, masks)
        )
        return within(self._space, noisy)


def within(space: Any, actions: Array) -> Array:
    """The actions in the dtype of the space and, for a Box, inside its bounds."""
    if isinstance(space, spaces.Box):
        clipped: Array = np.clip(actions.astype(space.dtype, copy=False), space.low, space.high)
        return clipped
    return actions


def as_player(
    policy: Any,
    *,
    action_space: Any,
    env_id: str | None,
    n_envs: int,
    deterministic: bool,
    generator: np.random.Generator,
) -> Player:
    """A player of `n_envs` environments with a policy.

    Raises:
        TypeError: The policy is nothing that acts.
        ValueError: There is no scripted expert for the environment.
    """
    if policy == "random":
        return RandomPlayer(action_space, n_envs, generator)
    if policy == "expert":
        if env_id is None:
            raise ValueError('policy must not be "expert" in an environment without an id')
        return FunctionPlayer(expert(env_id), action_space)
    if hasattr(policy, "player"):
        player: Player = policy.player(n_envs, deterministic)
        return player
    if callable(policy):
        return FunctionPlayer(policy, action_space)
    raise TypeError(
        'policy must be "random", "expert", an algorithm, or a function of observations [N, ...], '
        f"got {policy!r}"
    )


Progress = Callable[[str, int, int], object]
"""Told what is being done, how much of it is done, and of how much (0: unknown)."""


def play(
    env: Any,
    part: Part,
    *,
    env_id: str | None,
    seed: np.random.SeedSequence,
    progress: Progress | None = None,
) -> Iterator[CollectedEpisode]:
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
) -> Iterator[CollectedEpisode]:
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
            starts = np.zeros_like(starts) if step.valid is None else ~step.valid
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
