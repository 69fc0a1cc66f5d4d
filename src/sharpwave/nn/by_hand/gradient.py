"""Gradients of the on-policy losses, written out by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sharpwave import losses
from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.by_hand.heads import HEADS, make_head, rule_out
from sharpwave.nn.by_hand.metrics import METRICS, Metrics, Terms
from sharpwave.nn.by_hand.network import Networks, why_not_networks
from sharpwave.nn.by_hand.rollout import Rollout, Rows
from sharpwave.nn.flat import FlatParameters

__all__ = ["ByHand"]


class ByHand:
    """The gradients of PPO and A2C for multi-layer perceptrons, several times faster than autograd.

    `load` takes a whole rollout once; then each call computes the loss on some of its rows and
    overwrites the flat gradient with that of the loss, so `zero_grad` is not needed. Nothing waits
    for the device, and memory does not move between calls, so that a CUDA graph can hold them.

    Args:
        flat: Parameters of an `ActorCritic` that `why_not` has nothing against.
        max_batch: Most rows of one call.

    Raises:
        TypeError: The policy is not of the kind.
        ValueError: `max_batch` is not positive.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> box = spaces.Box(-1.0, 1.0, (3,))
        >>> policy = ActorCritic(box, spaces.Discrete(2), generator=np.random.default_rng(0))
        >>> flat = FlatParameters(policy)
        >>> by_hand = ByHand(flat, max_batch=4)
        >>> obs, zeros = torch.rand(8, 3), torch.zeros(8)
        >>> acted = policy.act(obs)
        >>> by_hand.load(obs, acted.actions, zeros, zeros, log_probs=acted.log_probs)
        >>> metrics = by_hand.ppo_gradient(torch.arange(4), clip=0.2)
        >>> metrics.shape, bool(flat.grad.any())
        (torch.Size([6]), True)
    """

    METRICS = METRICS
    """Names of what the calls give."""

    def __init__(self, flat: FlatParameters, max_batch: int) -> None:
        policy = flat.module
        reason = self.why_not(policy)
        if reason is not None:
            raise TypeError(f"the gradient cannot be taken by hand: {reason}")
        if max_batch < 1:
            raise ValueError(f"max_batch must be positive, got {max_batch}")
        assert isinstance(policy, ActorCritic)
        self._features = policy.features
        self._action_shape = policy.distribution.action_shape
        self._networks = Networks(policy.actor, policy.critic, max_batch)
        self._head = make_head(policy)
        device = flat.data.device
        self._rollout = Rollout(self._features.size, self._head.n, max_batch, device)
        self._metrics = Metrics(max_batch, device)

    @staticmethod
    def why_not(policy: nn.Module) -> str | None:
        """Why the gradients of a policy cannot be taken by hand; None when they can.

        Args:
            policy: Any module.

        Example:
            >>> ByHand.why_not(nn.Linear(2, 2))
            'the policy is a Linear, not an ActorCritic'
        """
        if type(policy) is not ActorCritic:
            return f"the policy is a {type(policy).__name__}, not an ActorCritic"
        if policy.recurrent:
            return "the policy is recurrent"
        if any(True for _ in policy.features.parameters()):
            return "the policy learns its features"
        if type(policy.distribution) not in HEADS:
            return f"its distribution is {type(policy.distribution).__name__}"
        if policy.log_std is not None and policy.log_std.ndim != 1:
            return "its noise depends on the state"
        if policy.log_std is not None and not policy.log_std.requires_grad:
            return "log_std is frozen"
        return why_not_networks(policy.actor, policy.critic)

    @classmethod
    def of(cls, flat: FlatParameters, max_batch: int) -> ByHand | None:
        """Gradients by hand where that is possible, None elsewhere.

        Args:
            flat: Parameters of any module.
            max_batch: Most rows of one call.
        """
        return cls(flat, max_batch) if cls.why_not(flat.module) is None else None

    def load(
        self,
        obs: Any,
        actions: Tensor,
        advantages: Tensor,
        returns: Tensor,
        *,
        log_probs: Tensor | None = None,
        old_values: Tensor | None = None,
        masks: Tensor | None = None,
    ) -> None:
        """Takes the rows that the next calls compute on.

        Args:
            obs: [N, ...] observations, nested where the space is.
            actions: [N, *action shape] raw actions.
            advantages: [N] advantages.
            returns: [N] returns.
            log_probs: [N] log-probabilities when the actions were taken, for PPO.
            old_values: [N] values then, for clipped value losses.
            masks: [N, n] bool, False where an action was forbidden.

        Raises:
            ValueError: Shapes do not fit, or the actions cannot have masks. Nothing has changed
                then.
        """
        with torch.no_grad():
            features = self._features(obs)
        count = len(features)
        scalars = {
            "log_probs": log_probs,
            "advantages": advantages,
            "returns": returns,
            "old_values": old_values,
        }
        for name, column in scalars.items():
            if column is not None:
                _check_shape(name, column, (count,))
        _check_shape("actions", actions, (count, *self._action_shape))
        if masks is not None:
            if not self._head.maskable:
                raise ValueError("masks need discrete actions, got masks for a Gaussian policy")
            _check_shape("masks", masks, (count, self._head.n))
        self._rollout.fill(features, scalars, self._head.encode(actions), masks)

    def ppo_gradient(
        self,
        indices: Tensor | None = None,
        *,
        clip: float | Tensor,
        vf_coef: float = 0.5,
        ent_coef: float = 0.0,
        clip_vloss: bool = False,
        value_clip: float | Tensor | None = None,
        normalize: bool = True,
    ) -> Tensor:
        """Overwrites the flat gradient with that of PPO's loss.

        L = `clipped_surrogate` + vf_coef · `value_loss` − ent_coef · mean(entropy), with
        `clipped_value_loss` instead where asked, all of them functions of `sharpwave.losses`.

        Args:
            indices: [B] rows to compute on, None for all.
            clip: Clip range.
            vf_coef: Weight of the value loss.
            ent_coef: Weight of the entropy.
            clip_vloss: Clips the values too.
            value_clip: Range of that; `clip` when None.
            normalize: Normalises the advantages of these rows.

        Returns:
            [6] what `METRICS` names.

        Raises:
            ValueError: The rows are too many, or a column that is needed was not loaded.
        """
        needed = ("log_probs", "old_values") if clip_vloss else ("log_probs",)
        rows = self._rollout.rows(indices, *needed)
        terms = self._metrics.terms(rows.obs.shape[1])
        values, log_probs = self._forward(rows, terms)
        advantages = losses.normalize(rows.advantages) if normalize else rows.advantages

        log_ratio = log_probs.sub_(rows.log_probs)
        ratio = log_ratio.exp()
        clipped = _clamp(ratio, 1 - clip, 1 + clip)
        gains, limits = advantages * ratio, advantages * clipped
        torch.minimum(gains, limits, out=terms.gains)
        torch.expm1(log_ratio, out=terms.kl).sub_(log_ratio)
        torch.ne(ratio, clipped, out=terms.clipped)
        # Where the limit is the lower one the loss is flat, elsewhere ∂(A r)/∂log r = A r.
        slopes = torch.le(gains, limits, out=limits).mul_(gains)
        if clip_vloss:
            of_values = clip if value_clip is None else value_clip
            errors = _clipped_errors(values, rows, of_values, terms.squares)
        else:
            errors = values.sub_(rows.returns)
            torch.mul(errors, errors, out=terms.squares)
        return self._backward(slopes, errors, terms, vf_coef, ent_coef)

    def a2c_gradient(
        self,
        indices: Tensor | None = None,
        *,
        vf_coef: float = 0.5,
        ent_coef: float = 0.0,
        normalize: bool = False,
    ) -> Tensor:
        """Overwrites the flat gradient with that of A2C's loss.

        L = `policy_gradient` + vf_coef · `value_loss` − ent_coef · mean(entropy), the functions of
        `sharpwave.losses`.

        Args:
            indices: [B] rows to compute on, None for all.
            vf_coef: Weight of the value loss.
            ent_coef: Weight of the entropy.
            normalize: Normalises the advantages of these rows.

        Returns:
            [6] what `METRICS` names; divergence and clipped fraction are 0.

        Raises:
            ValueError: The rows are too many, or nothing was loaded.
        """
        rows = self._rollout.rows(indices)
        terms = self._metrics.terms(rows.obs.shape[1])
        values, log_probs = self._forward(rows, terms)
        advantages = losses.normalize(rows.advantages) if normalize else rows.advantages
        torch.mul(advantages, log_probs, out=terms.gains)
        terms.kl.zero_()
        terms.clipped.zero_()
        errors = values.sub_(rows.returns)
        torch.mul(errors, errors, out=terms.squares)
        return self._backward(advantages, errors, terms, vf_coef, ent_coef)

    def _forward(self, rows: Rows, terms: Terms) -> tuple[Tensor, Tensor]:
        """Values and log-probabilities, each [1, B]; writes the terms of the entropy."""
        output, values = self._networks.forward(rows.obs)
        if rows.masks is not None:
            rule_out(output, rows.masks)
        return values, self._head.forward(output, rows.actions, terms.minus_entropy)

    def _backward(
        self, slopes: Tensor, errors: Tensor, terms: Terms, vf_coef: float, ent_coef: float
    ) -> Tensor:
        """Gradients from −B ∂/∂log π and B ∂/∂V [1, B] of the two losses; gives the metrics."""
        batch = slopes.shape[1]
        output_grad = self._head.backward(slopes * terms.mean, ent_coef / batch)
        self._networks.backward(output_grad, errors.mul_(vf_coef / batch))
        return self._metrics.of(terms, vf_coef, ent_coef)


def _clipped_errors(values: Tensor, rows: Rows, clip: float | Tensor, squares: Tensor) -> Tensor:
    """Half the derivative of max(e², e'²) by the values; writes the maximum into `squares`.

    e = V − R and e' = V_old + clip(V − V_old) − R. Where they tie, each has half a share.
    """
    moves = values - rows.old_values
    kept = _clamp(moves, -clip, clip)
    errors, clipped = values - rows.returns, rows.old_values + kept - rows.returns
    plain, limited = errors.square(), clipped.square()
    torch.maximum(plain, limited, out=squares)
    share = 0.5 * ((plain > limited).float() + (plain >= limited).float())
    return share * errors + (1.0 - share) * (kept == moves) * clipped


def _clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    return x.clamp(low, high)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
