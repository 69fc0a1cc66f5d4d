"""Transitions of a step of all environments, as callbacks get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sharpwave.core.lazy import torch
from sharpwave.core.tree import map_leaves
from sharpwave.envs import Step
from sharpwave.envs.step_infos import own_infos
from sharpwave.envs.tensors import FINAL_OBS
from sharpwave.types import Nested

__all__ = ["OnStep", "VectorStep", "tensor_step"]


class VectorStep(NamedTuple):
    """One step of N environments: `obs`, `actions` there, and what they led to.

    Arrays, or tensors where the environments step tensors; nobody writes to them any more.
    """

    obs: Nested
    """[N, ...] observations that were acted on, as the policy sees them (maybe normalized)."""
    actions: Any
    """[N, ...] as the environments took them, within their bounds."""
    rewards: Any
    """[N] as the environments gave them, not normalized."""
    terminated: Any
    """[N] bool, True where an episode ended in a terminal state."""
    truncated: Any
    """[N] bool, True where an episode was cut, as by a time limit."""
    next_obs: Nested
    """[N, ...] observations after the step: the true last one where an episode ended."""
    infos: dict[str, Any]
    """Infos of the step itself, in Gymnasium's vector form; where an episode ended, of its last."""
    valid: Any
    """[N] bool, False where the row is no step but a reset, which environments of the autoreset
    mode next_step take after the end of an episode."""

    @classmethod
    def of(cls, obs: Nested, actions: Any, step: Step) -> VectorStep:
        """The transitions of a step of arrays, taken from these observations with these actions."""
        valid = np.ones(len(step.rewards), np.bool_) if step.valid is None else step.valid
        return cls(
            obs,
            actions,
            step.raw_rewards,
            step.terminated,
            step.truncated,
            step.next_obs,
            own_infos(step),
            valid,
        )

    def normalized(self, normalizer: Any) -> VectorStep:
        """The same step with observations as a normalizer makes them; None changes nothing."""
        if normalizer is None:
            return self
        normalize = normalizer.normalize_obs
        return self._replace(obs=normalize(self.obs), next_obs=normalize(self.next_obs))


def tensor_step(obs: Any, actions: Any, step: Any, next_obs: Any = None) -> VectorStep:
    """The transitions of a step of tensors, which the environments may write to again later.

    Args:
        obs: [N, ...] observations that were acted on.
        actions: [N, ...] as the environments took them.
        step: With `obs`, `rewards`, `terminated`, `truncated`, `final_obs` and `infos`.
        next_obs: Observations that the actions led to, where they are known already.
    """
    ended = step.terminated | step.truncated

    def where_ended(last: Any, now: Any) -> Any:
        return torch.where(ended.view(-1, *(1 for _ in now.shape[1:])), last, now)

    if next_obs is None:
        # Where nobody knows the last observation, the one before it stands for it.
        last = obs if step.final_obs is None else step.final_obs
        next_obs = map_leaves(where_ended, last, step.obs)
    infos = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in step.infos.items()
        if name not in FINAL_OBS
    }
    flags = step.terminated.clone(), step.truncated.clone()
    valid = torch.ones_like(ended)
    return VectorStep(obs, actions, step.rewards.clone(), *flags, next_obs, infos, valid)


OnStep: TypeAlias = Callable[[float, Callable[[], VectorStep]], bool]
"""Told of every step: the mean reward, and what makes the whole step for whoever asks; False gives
up the rollout."""
