"""Steps whose rewards a learner adds to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sharpwave.tensors.episodes import TensorEpisodes
from sharpwave.tensors.steps import DeviceStep, DeviceSteps

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["IntrinsicSteps"]


class IntrinsicSteps:
    """Environments with the intrinsic rewards of a learner; `raw_rewards` are the environments'.

    Args:
        steps: The environments.
        learner: It gives `intrinsic_rewards` for what the environments are seen in.
        n_envs: Number of environments.

    Attributes:
        episodes: Statistics of the episodes, whose returns are of intrinsic rewards alone.
    """

    def __init__(self, steps: DeviceSteps, learner: Any, n_envs: int) -> None:
        self.steps = steps
        self.episodes = TensorEpisodes(n_envs, learner.device)
        self._learner = learner

    def reset(self, seed: int | None, timesteps: int) -> tuple[Any, Tensor | None]:
        """Start new episodes: observations [N, ...] and masks."""
        self.episodes.restart()
        return self.steps.reset(seed, timesteps)

    def step(self, actions: Tensor, timesteps: int) -> DeviceStep:
        """Step with the policy's actions."""
        step = self.steps.step(actions, timesteps)
        with self._learner.inference():
            rewards = self._learner.intrinsic_rewards(step.obs)
        self.episodes.update(step.terminated | step.truncated, rewards, None)
        return step._replace(rewards=step.rewards + rewards)

    def check(self, timesteps: int) -> None:
        """Raise where something of the steps so far was not finite."""
        self.steps.check(timesteps)
