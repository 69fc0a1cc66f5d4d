"""Gradients of the on-policy losses, written out by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sharpwave import losses
from sharpwave.nn.actor_critic import ActorCritic
from sharpwave.nn.by_hand.heads import HEADS, make_head, rule_out
from sharpwave.nn.by_hand.network import Network, why_not_network
from sharpwave.nn.by_hand.rollout import Rollout
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

    METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "loss")
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
        self._actor = Network(policy.actor, max_batch)
        self._critic = Network(policy.critic, max_batch)
        self._head = make_head(policy)
        self._rollout = Rollout(self._features.size, self._head.n, max_batch, flat.data.device)
        self._coefficients: tuple[float, float] | None = None

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
        return why_not_network("actor", policy.actor) or why_not_network("critic", policy.critic)

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
            normalize: Normalises the advantages of these rows.

        Returns:
            [6] what `METRICS` names.

        Raises:
            ValueError: The rows are too many, or a column that is needed was not loaded.
        """
        self._rollout.need("log_probs", *(("old_values",) if clip_vloss else ()))
        obs, old_log_probs, advantages, returns, old_values, actions, *masks = self._rollout.rows(
            indices
        )
        if normalize:
            advantages = losses.normalize(advantages)
        values, log_probs, entropy = self._forward(obs, actions, masks)

        log_ratio = log_probs - old_log_probs
        ratio = log_ratio.exp()
        clipped = _clamp(ratio, 1 - clip, 1 + clip)
        gains, limits = advantages * ratio, advantages * clipped
        # Where the limit is the lower one the loss is flat, elsewhere ∂(A r)/∂log r = A r.
        slopes = (gains <= limits) * gains
        if clip_vloss:
            squares, errors = _clipped_errors(values, old_values, returns, clip)
        else:
            errors = values - returns
            squares = errors.square()
        self._backward(slopes, errors, vf_coef, ent_coef)

        kl = log_ratio.expm1() - log_ratio
        outside = torch.ne(ratio, clipped, out=torch.empty_like(ratio))
        terms = torch.cat((torch.minimum(gains, limits), squares, entropy, kl, outside))
        return self._metrics(terms, vf_coef, ent_coef)

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
        self._rollout.need()
        obs, _, advantages, returns, _, actions, *masks = self._rollout.rows(indices)
        if normalize:
            advantages = losses.normalize(advantages)
        values, log_probs, entropy = self._forward(obs, actions, masks)
        errors = values - returns
        self._backward(advantages, errors, vf_coef, ent_coef)
        zeros = torch.zeros_like(entropy)
        terms = torch.cat((advantages * log_probs, errors.square(), entropy, zeros, zeros))
        return self._metrics(terms, vf_coef, ent_coef)

    def _forward(
        self, obs: Tensor, actions: Tensor, masks: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values, log-probabilities and entropy, each [1, B]."""
        output = self._actor.forward(obs)
        if masks:
            rule_out(output, masks[0])
        return self._critic.forward(obs), *self._head.forward(output, actions)

    def _backward(self, slopes: Tensor, errors: Tensor, vf_coef: float, ent_coef: float) -> None:
        """From −∂/∂log π [1, B] of the policy loss and ∂/∂V [1, B] of the value loss, times B."""
        batch = slopes.shape[1]
        self._actor.backward(self._head.backward(slopes * (-1.0 / batch), ent_coef / batch))
        self._critic.backward(errors * (vf_coef / batch))

    def _metrics(self, terms: Tensor, vf_coef: float, ent_coef: float) -> Tensor:
        """Metrics from their terms [5, B]."""
        if self._coefficients != (vf_coef, ent_coef):
            self._coefficients = (vf_coef, ent_coef)
            means = torch.diag(torch.tensor([-1.0, 0.5, 1.0, 1.0, 1.0]))
            loss = torch.tensor([[-1.0, 0.5 * vf_coef, -ent_coef, 0.0, 0.0]])
            self._table = torch.cat((means, loss)).to(terms.device)
        return torch.mv(self._table, terms.mean(1))


def _clipped_errors(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float | Tensor
) -> tuple[Tensor, Tensor]:
    """max(e², e'²) and half its derivative by the values, which autograd shares where they tie.

    e = V − R, e' = V_old + clip(V − V_old) − R.
    """
    moves = values - old_values
    kept = _clamp(moves, -clip, clip)
    errors, clipped = values - returns, old_values + kept - returns
    squares, clipped_squares = errors.square(), clipped.square()
    share = 0.5 * ((squares > clipped_squares).float() + (squares >= clipped_squares).float())
    slopes = share * errors + (1.0 - share) * (kept == moves) * clipped
    return torch.maximum(squares, clipped_squares), slopes


def _clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    return x.clamp(low, high)


def _check_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")
