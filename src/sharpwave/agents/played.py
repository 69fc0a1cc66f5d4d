"""Sequences of new episodes that an agent plays, beside its run."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpwave.buffers import Sequence
from sharpwave.collect import OffPolicyCollector
from sharpwave.learners.sequences import SequenceBatch
from sharpwave.loops.replay_store import ReplayStore

__all__ = ["played_sequences"]


def played_sequences(agent: Any, n: int, length: int, seed: int = 0) -> SequenceBatch:
    """Sequences [length, n] of the policy's samples in a separate environment, from its resets on.

    Neither the run nor its buffer notices.

    Args:
        agent: One whose learner takes sequences.
        n: Number of sequences.
        length: Observations of each; where an episode ends, the next one follows.
        seed: Of the environment.
    """
    env = agent.make_env(n)
    try:
        collector, player = OffPolicyCollector(env, seed=seed), agent.player(n, False)
        config = agent.own_config.replace(
            buffer="memory",
            buffer_size=4 * n * (length + 2),  # which ends of episodes take a part of
            batch_size=n,
            sequence_length=length,
            imag_last=None,
        )
        store = ReplayStore(env, config, given=None, seed=seed)
        collector.reset()
        store.open(collector.n_choices if collector.has_masks else None)
        taken = np.zeros(n, np.int64)
        while taken.min() < length + 2:  # one begins after the last of the sequence
            rows, _ = collector.step(lambda obs, masks: player.play(obs, collector.starts, masks))
            if rows is not None:
                store.write(rows)
                taken[slice(None) if rows.streams is None else rows.streams] += 1
        sampler = agent.learner.Sampler(
            store.source,
            n,
            view=Sequence(length, arrivals=True, cross=True),
            gamma=config.gamma,
            learner=agent.learner,
            has_masks=collector.has_masks,
            normalizer=agent.loop.normalizer,
        )
        sampler.refresh()
        first = np.sort(store.rows.indices())[:n]
        batch: SequenceBatch = sampler.as_batch(
            sampler._brought(dict(store.rows.gather(first, view=sampler.view)))
        )
        return batch
    finally:
        env.close()
