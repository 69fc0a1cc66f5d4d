"""Counts of episodes, and those that are new."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from sharpwave.collect.episodes import EpisodeStats

ONE = np.ones(1)
ENDS = np.array([True])


def test_new_episodes_are_told_once() -> None:
    stats = EpisodeStats(1, window=2)
    stats.update(ONE, ENDS)
    assert stats.take_new() == []  # nobody had asked for them
    for length in (1, 2, 3):
        for step in range(length):
            stats.update(ONE, np.array([step == length - 1]))
    stats.add(np.array([7.0]), np.array([4]))
    assert stats.take_new() == [(1.0, 1), (2.0, 2), (3.0, 3), (7.0, 4)]  # more than the window has
    assert stats.take_new() == []
    assert stats.count == 5


def test_new_episodes_of_before_are_forgotten_with_a_state() -> None:
    stats = EpisodeStats(1)
    state = stats.state_dict()
    stats.take_new()
    stats.update(ONE, ENDS)
    stats.load_state_dict(state)
    assert stats.take_new() == []


def test_none_is_lost_while_another_thread_adds() -> None:
    stats = EpisodeStats(1)
    stats.take_new()

    def add() -> None:
        for _ in range(5_000):
            stats.update(ONE, ENDS)

    adding = threading.Thread(target=add)
    adding.start()
    taken = 0
    while adding.is_alive():
        taken += len(stats.take_new())
    adding.join()
    assert taken + len(stats.take_new()) == 5_000


def test_episodes_of_a_device_are_told_as_far_as_the_window_reaches() -> None:
    torch = pytest.importorskip("torch")
    from sharpwave.tensors import TensorEpisodes

    episodes = TensorEpisodes(2, "cpu", window=3)
    rewards, both = torch.tensor([1.0, 2.0]), torch.tensor([True, True])
    episodes.update(both, rewards, None)
    assert episodes.take_new() == []
    episodes.update(torch.tensor([False, True]), rewards, None)
    assert episodes.take_new() == [(2.0, 1)]
    for _ in range(2):
        episodes.update(both, rewards, None)
    assert episodes.take_new() == [(2.0, 1), (1.0, 1), (2.0, 1)]
    assert episodes.take_new() == []
