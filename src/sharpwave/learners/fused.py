"""PPO's learner on a GPU, where kernels know its loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from sharpwave.core.lazy import nn, torch
from sharpwave.core.optional import is_installed
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.learner import Acted, Metrics
from sharpwave.learners.policy_learner import PolicyLearner

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FusedPolicyLearner", "why_not_fused"]

WIDEST = 64
"""Logits or means of a row, up to which kernels hold whole rows."""

CHANGEABLE = {"evaluate", "act", "values"}
"""Methods of a policy that kernels stand for."""


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

    @property
    def known_policy(self) -> type[Any]:
        """The network whose heads kernels know."""
        return nn.ActorCritic

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one minibatch, and what is logged of it: tensors of one number by name."""
        if batch.weights is not None or not self._is_known():
            found: tuple[Tensor, Metrics] = super().loss(batch)  # type: ignore[misc]
            return found
        from sharpwave.primitives.ppo_loss.tensors import METRICS, ppo_loss

        params, values = self.policy.heads(batch.obs, masks=batch.masks)
        output, log_std = params if isinstance(params, tuple) else (params, None)
        loss, metrics = ppo_loss(
            output.float(), values.float(), batch.actions, log_std=log_std, **self._terms(batch)
        )
        return loss, dict(zip(METRICS, metrics.unbind(), strict=True))

    def differentiate(self, batch: OnPolicyBatch, rows: Tensor | None) -> Metrics:
        """Set the gradient to that of the loss of some rows; what is logged of the loss."""
        layers = self._held_layers(batch)
        if rows is None or layers is None:
            found: Metrics = super().differentiate(batch, rows)  # type: ignore[misc]
            return found
        from sharpwave.primitives.ppo_loss.tensors import METRICS
        from sharpwave.primitives.small_ppo.tensors import gradient

        metrics = gradient(
            rows,
            batch.obs,
            batch.actions,
            actor=layers[0],
            critic=layers[1],
            out=self.flat.grad,
            log_std=self.policy.log_std,
            activation=self.config.activation,
            **self._terms(batch),
        )
        return dict(zip(METRICS, metrics.unbind(), strict=True))

    def _held_layers(self, batch: OnPolicyBatch) -> tuple[list[Tensor], list[Tensor]] | None:
        """Layers of actor and critic, if a kernel holds their gradients; None otherwise."""
        from sharpwave.primitives.small_ppo.tensors import are_held

        is_rounded = self.device.type != "cuda" or self.config.matmul != "fp32"
        is_plain = batch.masks is None and batch.weights is None and "loss" not in vars(self)
        layers = self._small_layers(batch.obs) if is_rounded and is_plain else None
        if layers is None or not all(map(are_held, layers)):
            return None
        log_std = self.policy.log_std
        order = [*([] if log_std is None else [log_std]), *layers[0], *layers[1]]
        ours = list(self.policy.parameters())
        return layers if list(map(id, ours)) == list(map(id, order)) else None

    def _terms(self, batch: OnPolicyBatch) -> dict[str, Any]:
        """Columns and coefficients of the loss, beside the networks and what they are given."""
        config = self.config
        return {
            "old_log_probs": batch.log_probs,
            "old_values": batch.values,
            "advantages": batch.advantages,
            "returns": batch.returns,
            "clip": self.clip,
            "value_clip": self.value_clip if config.clips_values else None,
            "vf_coef": config.vf_coef,
            "ent_coef": config.ent_coef,
            "normalize": config.normalize_advantages,
        }

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, masks: Any = None
    ) -> Acted:
        """Actions sampled from the policy, or its mode, with log-probabilities and values."""
        layers = self._small_layers(obs) if explore and masks is None else None
        if layers is None:
            return super().act(obs, explore=explore, state=state, starts=starts, masks=masks)
        from sharpwave.nn.distributions import TINY
        from sharpwave.primitives.small_policy.tensors import act

        policy = self.policy
        noise = torch.empty(len(obs), policy.distribution.n_params, device=self.device)
        if policy.log_std is None:
            noise.uniform_(TINY, 1.0, generator=self.explore_generator)
        else:
            noise.normal_(generator=self.explore_generator)
        found = act(obs, *layers, noise, log_std=policy.log_std, **self._arithmetic())
        return Acted(*found, None)

    def values(self, obs: Any, state: Any = None) -> Tensor:
        """Values [N] of observations [N, ...]."""
        layers = self._small_layers(obs)
        if layers is None:
            return super().values(obs, state)
        from sharpwave.primitives.small_policy.tensors import value

        return value(obs, layers[1], **self._arithmetic())

    def _arithmetic(self) -> dict[str, Any]:
        exact = self.device.type != "cuda" or self.config.matmul == "fp32"
        return {"activation": self.config.activation, "exact": exact}

    def _small_layers(self, obs: Any) -> tuple[list[Tensor], list[Tensor]] | None:
        """Layers of actor and critic, if one kernel holds each and observations are vectors."""
        from sharpwave.nn.features import Flat
        from sharpwave.primitives.small_policy.tensors import ACTIVATIONS

        policy, config = self.policy, self.config
        if not self._is_known() or config.matmul == "bf16" or config.activation not in ACTIVATIONS:
            return None
        if policy.critic_features is not None or policy.actor_norm is not None:
            return None
        if policy.std is not None:  # in place of its logarithm
            return None
        are_vectors = type(policy.features) is Flat and isinstance(obs, torch.Tensor)
        if not are_vectors or obs.ndim != 2 or obs.dtype != torch.float32:
            return None
        actor, critic = self._layers_of(policy.actor), self._layers_of(policy.critic)
        return None if actor is None or critic is None else (actor, critic)

    def _layers_of(self, network: Any) -> list[Tensor] | None:
        """Weights and biases of a small network; None for any other."""
        from sharpwave.nn.mlp import ACTIVATIONS
        from sharpwave.primitives.small_policy.tensors import are_small

        activation = ACTIVATIONS[self.config.activation]
        kinds = [type(layer) for layer in network]
        linear = torch.nn.Linear
        if kinds != [linear, activation] * (len(kinds) // 2) + [linear]:
            return None
        layers = list(network.parameters())
        return layers if are_small(layers) else None

    def _is_known(self) -> bool:
        """Return whether the policy is still one that kernels know."""
        policy: Any = self.policy
        if type(policy) is not self.known_policy:
            return False
        if policy.recurrent or self.total is not None:
            return False
        if CHANGEABLE & vars(policy).keys():
            return False
        return type(policy.distribution) in (nn.Categorical, nn.DiagonalGaussian)
