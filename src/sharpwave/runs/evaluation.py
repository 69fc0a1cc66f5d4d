"""Evaluation of a policy over whole episodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sharpwave.envs import Stepper, action_masks
from sharpwave.envs.multi.vector import MultiAgentVectorEnv, MultiStep
from sharpwave.envs.step_infos import success_of
from sharpwave.pages.text import count
from sharpwave.types import Array, Nested


class Player(Protocol):
    """Plays environments: knows the policy, its normalization and its recurrent state."""

    def play(
        self,
        obs: Nested,
        starts: npt.NDArray[np.bool_],
        masks: npt.NDArray[np.bool_] | None = None,
    ) -> Array:
        """Actions for the environments, from observations [N, ...] as they gave them."""


@dataclass(frozen=True)
class EvaluationResult:
    """Returns and lengths of the episodes of one evaluation, in the order they ended."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    successes: tuple[float, ...] = ()
    """1 for each episode that reached its goal and 0 for others, of those whose infos say so by
    `is_success` or `success`; empty where none does."""
    samples: tuple[dict[str, Any], ...] | None = field(default=None, repr=False, compare=False)
    """Completions of a language model, a row each as `Callback.on_samples` has them; None where
    episodes were played."""
    each: str = field(default="episode", repr=False, compare=False)
    """The thing that each return is of, such as "episode"."""
    agents: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Returns of each of several agents, of which `returns` are the means; empty for one."""

    @property
    def mean(self) -> float:
        """Mean return; NaN of none, as where no completion was scored."""
        return float(np.mean(self.returns)) if self.returns else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns)) if self.returns else math.nan

    @property
    def mean_length(self) -> float:
        """Mean episode length."""
        return float(np.mean(self.lengths)) if self.lengths else math.nan

    @property
    def agent_means(self) -> dict[str, float]:
        """Mean return of each of several agents."""
        return {agent: float(np.mean(returns)) for agent, returns in self.agents.items()}

    @property
    def success_rate(self) -> float | None:
        """Share of the episodes that reached their goal; None where the infos do not say so."""
        return float(np.mean(self.successes)) if self.successes else None

    def __str__(self) -> str:
        episodes = count(len(self.returns), self.each)
        success = "" if self.success_rate is None else f", success rate {self.success_rate:.0%}"
        return f"{self.mean:,.2f} ± {self.std:,.2f} over {episodes}{success}"


def evaluate(player: Player, env: Any, n_episodes: int, seed: int | None) -> EvaluationResult:
    """Play `n_episodes` whole episodes.

    Every environment plays its share, so that short episodes are not counted more often than long
    ones.

    Args:
        player: The player.
        env: A vector environment; it is reset first.
        n_episodes: At least 1.
        seed: Seed of the environments.
    """
    if n_episodes < 1:
        raise ValueError(f"n_episodes must be at least 1, got {n_episodes}")
    n_envs = env.num_envs
    left = np.array([(n_episodes + i) // n_envs for i in range(n_envs)])
    running_returns = np.zeros(n_envs, np.float64)
    running_lengths = np.zeros(n_envs, np.int64)
    returns: list[float] = []
    lengths: list[int] = []
    successes: list[float] = []

    stepper = Stepper(env)
    obs, infos = stepper.reset(seed=seed)
    starts = np.ones(n_envs, np.bool_)
    while left.any():
        step = stepper.step(player.play(obs, starts, action_masks(env, infos)))
        obs, infos = step.obs, step.infos
        valid = np.ones(n_envs, np.bool_) if step.valid is None else step.valid
        running_returns += np.where(valid, step.raw_rewards, 0)
        running_lengths += valid
        ended = step.terminated | step.truncated
        success = success_of(infos, ended) if ended.any() else None
        for i in np.flatnonzero(ended):
            if left[i]:
                if success is not None and not np.isnan(success[i]):
                    successes.append(float(success[i]))
                returns.append(float(running_returns[i]))
                lengths.append(int(running_lengths[i]))
                left[i] -= 1
        running_returns[ended] = 0
        running_lengths[ended] = 0
        starts = ~valid if stepper.mode == "next_step" else ended
    return EvaluationResult(tuple(returns), tuple(lengths), tuple(successes))


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
