"""The seeds of all parts of a run, derived from one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Seeds"]


class Seeds(NamedTuple):
    """A seed for each part that draws.

    Attributes:
        weights: First parameters of the networks.
        env: Environments; offline, draws from the dataset.
        learning: Noise and order of updates.
        exploring: Actions in training; None where they come from the generator of learning.
        playing: Actions elsewhere, so that play does not change the run.
        drawing: Batches of a replay buffer.
    """

    weights: np.random.SeedSequence
    env: int
    learning: int
    exploring: int | None
    playing: int
    drawing: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        """The seeds of a run whose actions in training and updates share one generator."""
        weights, env, noise = np.random.SeedSequence(seed).spawn(3)
        env_seed = int(env.generate_state(1)[0] >> 1)
        learning = int(noise.generate_state(1, np.uint64)[0] >> 1)
        return cls(weights, env_seed, learning, None, learning + 1, env_seed)

    @classmethod
    def of_replay(cls, seed: int) -> Seeds:
        """The seeds of a run that learns from replay, with a generator for each part."""
        shared = cls.of(seed)
        states = np.random.SeedSequence(shared.learning).generate_state(4, np.uint64) >> 1
        learning, exploring, playing, drawing = (int(state) for state in states)
        return cls(shared.weights, shared.env, learning, exploring, playing, drawing)

    def of_rank(self, rank: int) -> Seeds:
        """The seeds of one of the processes that learn together: equal weights, other draws."""
        if rank == 0:
            return self
        return Seeds(
            self.weights,
            _mixed(self.env, rank) >> 32,
            _mixed(self.learning, rank),
            None if self.exploring is None else _mixed(self.exploring, rank),
            _mixed(self.playing, rank),
            _mixed(self.drawing, rank),
        )


def _mixed(seed: int, rank: int) -> int:
    """A seed of 63 bits for one of several processes."""
    return int(np.random.SeedSequence((seed, rank)).generate_state(1, np.uint64)[0] >> 1)
