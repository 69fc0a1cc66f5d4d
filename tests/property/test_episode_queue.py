"""Episodes of environments side by side come as if one environment had played them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sharpwave.datasets.episode_queue import EpisodeQueue
from sharpwave.envs import Stepper
from tests.envs import CountingEnv, vectorized

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def begun(all_lengths: list[list[int]], n_episodes: int) -> list[tuple[int, int, int]]:
    """Environment, number and length of the episodes by when they begin, then by environment."""
    found = []
    for env, own in enumerate(all_lengths):
        start = 0
        for number in range(n_episodes):
            length = own[number % len(own)]
            found.append((start, env, number, length))
            start += length
    return [(env, number, length) for _, env, number, length in sorted(found)[:n_episodes]]


def played(queue: EpisodeQueue, stepper: Stepper, n_envs: int) -> list[Any]:
    episodes = []
    while not queue.complete:
        actions = np.zeros(n_envs, np.int64)
        queue.add(actions, stepper.step(actions))
        episodes += list(queue.ready())
    return episodes


@given(
    st.lists(lengths, min_size=1, max_size=4),
    st.sampled_from(["same_step", "disabled"]),
    st.integers(1, 12),
    st.booleans(),
)
def test_episodes_are_those_that_began_first(
    all_lengths: list[list[int]], mode: str, count: int, by_steps: bool
) -> None:
    makers = [
        lambda n=n, own=own: CountingEnv(own, n, "truncated") for n, own in enumerate(all_lengths)
    ]
    env = vectorized(makers, mode)
    stepper = Stepper(env)
    obs, _ = stepper.reset(seed=7)
    wanted: Any = {"n_steps": count} if by_steps else {"n_episodes": count}
    queue = EpisodeQueue(env.num_envs, obs, seed=7, **wanted)
    episodes = played(queue, stepper, env.num_envs)

    expected = begun(all_lengths, count)
    if by_steps:
        ends = np.cumsum([length for *_, length in expected])
        expected = expected[: int(np.searchsorted(ends, count)) + 1]
        env_number, number, length = expected[-1]
        expected[-1] = (env_number, number, length - int(ends[len(expected) - 1] - count))
        assert sum(map(len, episodes)) == count
    assert [(*map(int, e.obs[0, :2]), len(e)) for e in episodes] == expected
    for episode, (number, _, length) in zip(episodes, expected, strict=True):
        assert episode.obs[:, 2].tolist() == list(range(length))
        assert episode.final_obs.tolist() == [*episode.obs[0, :2], length]
        assert episode.truncated.tolist() == [False] * (length - 1) + [True]
        assert not episode.terminated.any()
        assert episode.seed == (7 + number if episode.obs[0, 1] == 0 else None)
