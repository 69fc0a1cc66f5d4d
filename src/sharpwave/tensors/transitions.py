"""Steps for a replay buffer that stay on the device of their environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpwave.collect.collector import CollectorState
from sharpwave.collect.off_policy import MASK, OBSERVATION, Transitions, count_choices
from sharpwave.collect.vector_step import VectorStep, tensor_step
from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.envs import TensorVectorEnv
from sharpwave.envs.tensors import TensorStep
from sharpwave.tensors.episodes import TensorEpisodes
from sharpwave.tensors.steps import FiniteWatch, tensor_success

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TensorTransitionCollector"]

Choose = Callable[[Any, "Tensor | None"], "Tensor"]
"""Function from observations [N, ...] and masks [N, n] to actions [N, ...]."""


class TensorTransitionCollector(CollectorState):
    """Steps N environments of tensors and hands out what happened.

    It does what `OffPolicyCollector` does. Nothing is copied to the host, and nothing waits for the
    device before `check`.

    Args:
        env: The environments.
        seed: Of the first reset.

    Attributes:
        watch: Checks that the numbers are finite.
        is_watched: True to keep `taken`.
        taken: The last step as callbacks see it.
    """

    episodes: TensorEpisodes
    is_watched = False
    taken: VectorStep | None = None

    def __init__(self, env: TensorVectorEnv, seed: int | None) -> None:
        super().__init__(env, seed, TensorEpisodes(env.num_envs, env.device))
        self.ended = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        self.watch = FiniteWatch(env.device)

    @property
    def starts(self) -> Tensor:
        """[N] where an episode starts with the observations to act on."""
        starts: Tensor = self.ended
        return starts

    @property
    def n_choices(self) -> int:
        """The length of a mask."""
        return count_choices(self.env.single_action_space)

    def reset(self) -> None:
        """Start new episodes everywhere."""
        obs, infos = self.env.reset_tensors(self._seed)
        self._seed = None  # the next reset goes on with the environments' own generators
        self.masks = infos.get(MASK)
        self.has_masks |= self.masks is not None
        self.ended.fill_(True)
        self.episodes.restart()
        self.watch.look(obs)
        self.obs = obs
        self._restarted = True

    def step(self, choose: Choose) -> tuple[Transitions, Tensor]:
        """One step of every environment.

        Args:
            choose: Function that chooses the actions.

        Returns:
            The rows for a buffer and their mean reward, all tensors.

        Raises:
            ValueError: The first action mask came later than with the first observation.
        """
        step: TensorStep
        obs, actions, step = self._act(choose, self.env.step_tensors)
        masks = step.infos.get(MASK)
        if masks is not None and not self.has_masks:
            raise ValueError("env must give an action mask with its first observation too")
        self.ended = step.terminated | step.truncated
        # Where nobody knows the last observation, the one before it stands for it.
        last = obs if step.final_obs is None else step.final_obs
        next_obs = map_leaves(self._where_ended, last, step.obs)
        self.watch.look((step.obs, step.rewards))
        if step.final_obs is not None:
            self.watch.look(next_obs)
        self.taken = tensor_step(obs, actions, step, next_obs) if self.is_watched else None
        if self.has_masks:
            allowed = None if masks is None else masks | self.ended[:, None]
            next_obs = self._with_mask(next_obs, allowed)
            obs = self._with_mask(obs, self.masks)
        rows = Transitions(
            obs,
            actions,
            step.rewards,
            step.terminated,
            step.truncated,
            next_obs,
            None,
            self._take_restarted(),
        )
        self.episodes.update(self.ended, step.rewards, tensor_success(step.infos))
        self.timesteps += self.env.num_envs
        self.obs, self.masks = step.obs, masks
        return rows, step.rewards.mean()

    def check(self) -> None:
        """Raise where something was not finite; waits for the device.

        Raises:
            NonFiniteError: It was not.
        """
        self.watch.check("the environment and the policy", self.timesteps)

    def _where_ended(self, last: Tensor, now: Tensor) -> Tensor:
        shape = (-1, *(1 for _ in now.shape[1:]))
        return torch.where(self.ended.view(shape), last, now)

    def _with_mask(self, obs: Any, masks: Tensor | None) -> Any:
        if masks is None:
            shape = (self.env.num_envs, self.n_choices)
            masks = torch.ones(shape, dtype=torch.bool, device=self.env.device)
        return {OBSERVATION: obs, MASK: masks}

    def _as_arrays(self, tree: Any) -> Any:
        return None if tree is None else map_leaves(lambda leaf: leaf.cpu().numpy().copy(), tree)

    def _from_arrays(self, tree: Any) -> Any:
        def tensor(leaf: Any) -> Tensor:
            return torch.from_numpy(np.array(leaf)).to(self.env.device)

        return None if tree is None else map_leaves(tensor, tree)
