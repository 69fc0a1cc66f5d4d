"""PPO's learner on a GPU, where kernels know its loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from sharpwave.core.lazy import nn
from sharpwave.core.optional import is_installed
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.learner import Metrics
from sharpwave.learners.policy_learner import PolicyLearner

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedPolicyLearner", "why_not_fused"]

WIDEST = 64
"""Logits or means of a row, up to which kernels hold whole rows."""


def why_not_fused(config: Any, action_space: spaces.Space[Any]) -> str | None:
    """Why kernels do not know the loss of a policy; None when they do."""
    for option in ("recurrent", "use_gsde", "squash_actions", "compile"):
        value = getattr(config, option)
        if value:
            return f"{option} is on" if value is True else f"{option} is {value!r}"
    if isinstance(action_space, spaces.Discrete):
        width = int(action_space.n)
    elif isinstance(action_space, spaces.Box):
        width = math.prod(action_space.shape)
    else:
        return f"actions are {type(action_space).__name__}"
    if width > WIDEST:
        return f"actions have a width of {width}"
    return None if is_installed("triton") else "triton is not installed"


class FusedPolicyLearner(PolicyLearner):
    """Computes the loss of PPO and its gradient as one operation; comes before PPO's learner.

    Where somebody changed what it stands for, the learner that follows it computes.
    """

    clip: Tensor
    value_clip: Tensor

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one minibatch, and what is logged of it: tensors of one number by name."""
        if batch.weights is not None or not self._is_known():
            found: tuple[Tensor, Metrics] = super().loss(batch)  # type: ignore[misc]
            return found
        from sharpwave.primitives.ppo_loss.tensors import METRICS, ppo_loss

        config = self.config
        params, values = self.policy.heads(batch.obs, masks=batch.masks)
        output, log_std = params if isinstance(params, tuple) else (params, None)
        loss, metrics = ppo_loss(
            output.float(),
            values.float(),
            batch.actions,
            old_log_probs=batch.log_probs,
            old_values=batch.values,
            advantages=batch.advantages,
            returns=batch.returns,
            clip=self.clip,
            value_clip=self.value_clip if config.clips_values else None,
            log_std=log_std,
            vf_coef=config.vf_coef,
            ent_coef=config.ent_coef,
            normalize=config.normalize_advantages,
        )
        return loss, dict(zip(METRICS, metrics.unbind(), strict=True))

    def _is_known(self) -> bool:
        """Return whether the policy is still one that kernels know."""
        policy = self.policy
        if type(policy) is not nn.ActorCritic or policy.recurrent or self.total is not None:
            return False
        if "evaluate" in vars(policy):
            return False
        return type(policy.distribution) in (nn.Categorical, nn.DiagonalGaussian)
