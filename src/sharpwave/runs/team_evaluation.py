"""Evaluation of the policies of several agents over whole episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np

from sharpwave.envs.multi.vector import MultiAgentVectorEnv, MultiStep
from sharpwave.runs.evaluation import EvaluationResult

__all__ = ["TeamPlayer", "evaluate_team"]


class TeamPlayer(Protocol):
    """Plays multi-agent environments: knows the policies and their recurrent states."""

    def play(self, step: MultiStep, starts: Mapping[str, Any]) -> dict[str, Any]:
        """Actions [N, G, ...] by group for what a step left to act on.

        Args:
            step: The step, or the beginning.
            starts: [N, G] by group, where a life begins.
        """


def evaluate_team(
    player: TeamPlayer,
    env: MultiAgentVectorEnv,
    n_episodes: int,
    seed: int | None,
    learning: Collection[str] | None = None,
) -> EvaluationResult:
    """Play `n_episodes` whole episodes, every environment its share.

    Args:
        player: The player.
        env: The environments; they are reset first.
        n_episodes: At least 1.
        seed: Seed of the environments.
        learning: The groups that learn; None for all.

    Returns:
        The return of a team is the mean of its agents' returns, of those that learn; the returns of
        all are in `agents`.
    """
    n_envs = env.num_envs
    agents = [agent for members in env.groups.values() for agent in members]
    left = np.array([(n_episodes + i) // n_envs for i in range(n_envs)])
    running = np.zeros((n_envs, len(agents)), np.float64)
    lengths = np.zeros(n_envs, np.int64)
    played: list[Any] = []
    played_lengths: list[int] = []

    step = env.reset(seed=seed)
    only_resets = np.zeros(n_envs, np.bool_)
    begins = {name: np.ones_like(group.alive) for name, group in step.groups.items()}
    while left.any():
        acting = {name: group.alive for name, group in step.groups.items()}
        starts = {name: begins[name] & acting[name] for name in begins}
        step = env.step(player.play(step, starts))
        for name, group in step.groups.items():
            ended = group.terminated | group.truncated | step.ended[:, None]
            begins[name] = (begins[name] & ~acting[name]) | ended
        running += np.concatenate([step.groups[name].rewards for name in env.groups], 1)
        lengths += ~only_resets
        only_resets = step.ended & env.resets_apart
        for i in np.flatnonzero(step.ended):
            if left[i]:
                played.append(running[i].copy())
                played_lengths.append(int(lengths[i]))
                left[i] -= 1
        running[step.ended] = 0
        lengths[step.ended] = 0
    returns = np.stack(played)
    learning = env.groups if learning is None else learning
    learns = [name in learning for name, members in env.groups.items() for _ in members]
    return EvaluationResult(
        tuple(returns[:, learns].mean(1).tolist()),
        tuple(played_lengths),
        agents={
            agent: tuple(column) for agent, column in zip(agents, returns.T.tolist(), strict=True)
        },
    )
