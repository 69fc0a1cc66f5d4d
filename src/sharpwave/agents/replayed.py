"""Learning without acting: from what the buffer holds, or from a dataset.

Classes of agents that learn from sequences take these methods as their own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sharpwave.agents.dreams import check_has_batch
from sharpwave.buffers import ReplayBuffer, Sequence, Transition, Uniform
from sharpwave.buffers.offline_mixture import rows_of
from sharpwave.core.tree import leaves
from sharpwave.loops.loop import means
from sharpwave.loops.offline_data import first_step, normalizes, open_dataset
from sharpwave.loops.offline_spaces import check_dataset
from sharpwave.runs.interval import positive
from sharpwave.runs.recorded import fetched
from sharpwave.runs.run import check_convergence

__all__ = ["learn", "pretrain"]

AT_ONCE = 100
"""Gradient steps after which it is looked whether learning diverged."""


def learn(self: Any, gradient_steps: int) -> dict[str, float]:  # noqa: D417
    """Learn from what the buffer holds, without a step of the environment.

    Schedules stand where the run stands.

    Args:
        gradient_steps: Number of gradient steps.

    Returns:
        Means of what they measured.

    Raises:
        NonFiniteError: Learning diverged.
        ValueError: The buffer does not hold a batch yet, or `gradient_steps` is less than 1.
    """
    gradient_steps = positive(gradient_steps, name="gradient_steps")
    check_has_batch(self.loop)
    return _learned(self, gradient_steps)


def pretrain(self: Any, dataset: Any, gradient_steps: int) -> dict[str, float]:  # noqa: D417
    """Learn model, policy and values from a dataset of transitions, without the environment.

    Sequences begin with nothing remembered, since datasets hold no latent states.

    Args:
        dataset: An `EpisodeBuffer`, an `OfflineDatasetBuffer`, a replay buffer that keeps steps in
            order, columns of steps, or where one of these lies, such as `minari:ID`.
        gradient_steps: Number of gradient steps.

    Returns:
        Means of what they measured.

    Raises:
        NonFiniteError: Learning diverged.
        SharpwaveIOError: There is no dataset where one was said to be.
        TypeError: `dataset` is none, or does not keep steps in order.
        ValueError: Its spaces are not those of the agent, it tells of no episode's end or is too
            short, or `gradient_steps` is less than 1.
    """
    gradient_steps = positive(gradient_steps, name="gradient_steps")
    config, learner = self.config, self.learner
    rows = _in_episodes(self, dataset)
    if len(rows) <= config.sequence_length:
        raise ValueError(
            f"dataset must be longer than a sequence of {config.sequence_length} rows, "
            f"got {len(rows)} steps"
        )
    sampler = learner.Sampler(
        rows,
        config.batch_size,
        view=Sequence(config.sequence_length, arrivals=True, cross=True),
        gamma=config.gamma,
        learner=learner,
        normalizer=self.loop.normalizer,
        next_seed=partial(_next_seed, learner),
        selector=Uniform(),
    )
    return _learned(self, gradient_steps, sampler)


def _next_seed(learner: Any) -> int:
    """Batches are a function of the run's seed and of the number of the gradient step."""
    sequence = np.random.SeedSequence((learner.seeds.drawing, learner.updates))
    return int(sequence.generate_state(1, np.uint64)[0])


def _in_episodes(agent: Any, dataset: Any) -> ReplayBuffer:
    """The steps of a dataset in order, with the ends of episodes."""
    found = open_dataset(dataset)
    rows = rows_of(found)
    if not isinstance(rows, ReplayBuffer) or rows.n_envs is None:
        raise TypeError(f"dataset must keep its steps in order, got {type(found).__name__}")
    if normalizes(found):
        raise ValueError(
            "dataset must hold observations as the environment gives them, got normalize=True"
        )
    wanted = {name: space.shape for name, space in _entries(agent.observation_space).items()}
    got = {name or "obs": leaf.shape[1:] for name, leaf in leaves(first_step(found)["obs"])}
    if got != wanted:
        raise ValueError(f"dataset must have observations of shapes {wanted}, got {got}")
    check_dataset(found, agent.observation_space, agent.action_space)
    ends = rows.gather(rows.indices(), view=Transition(("terminated", "truncated")))
    if not any(np.any(column) for column in ends.values()):
        raise ValueError(
            "dataset must tell where its episodes end: neither terminated nor truncated is ever set"
        )
    return rows


def _entries(space: Any) -> dict[str, Any]:
    return dict(space.spaces) if hasattr(space, "spaces") else {"obs": space}


def _learned(agent: Any, gradient_steps: int, sampler: Any = None) -> dict[str, float]:
    """The means of what some gradient steps measured."""
    loop, learner = agent.loop, agent.learner
    loop.follow(agent.run.progress_remaining)
    totals: dict[str, float] = {}
    with loop.few_threads():
        for begin in range(0, gradient_steps, AT_ONCE):
            count = min(AT_ONCE, gradient_steps - begin)
            metrics = fetched(means(loop.take_gradient_steps(count, sampler)))
            check_convergence(metrics, agent.run.timesteps)
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + value * count / gradient_steps
    if loop.config.overlap:  # what acts is a copy
        loop.actor.learner.copy_acting(learner)
    return totals
