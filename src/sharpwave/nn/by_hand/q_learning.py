"""The gradient of the Q-learning loss, written out by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sharpwave.nn.by_hand.chain import Chain, why_not_chain
from sharpwave.nn.q_networks import QNetwork

__all__ = ["QByHand"]


class QByHand:
    """The gradient of Q-learning for multi-layer perceptrons, about twice as fast as autograd.

    `gradient` overwrites the gradients of the online network, so `zero_grad` is not needed. Nothing
    waits for the device.

    Args:
        online: A network with flat parameters that `why_not` has nothing against.
        target: Another one of the same form.

    Raises:
        TypeError: The network is not of the kind.

    Example:
        >>> import copy
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> from sharpwave.nn import FlatParameters
        >>> box, choice = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2)
        >>> online = QNetwork(box, choice, generator=np.random.default_rng(0))
        >>> flat, target = FlatParameters(online), FlatParameters(copy.deepcopy(online))
        >>> by_hand = QByHand(online, target.module)
        >>> obs, zeros = torch.rand(4, 3), torch.zeros(4)
        >>> metrics, errors = by_hand.gradient(obs, zeros.long(), zeros, obs, zeros)
        >>> metrics.shape, errors.shape, bool(flat.grad.any())
        (torch.Size([3]), torch.Size([4]), True)
    """

    def __init__(self, online: QNetwork, target: QNetwork) -> None:
        reason = self.why_not(online)
        if reason is not None:
            raise TypeError(f"the gradient cannot be taken by hand: {reason}")
        self._features = online.features
        self._branches = online.branches
        self._online = _Duel(online) if online.dueling else Chain(online.net)
        self._target = _Duel(target) if target.dueling else Chain(target.net)
        self._starts = online.branches.starts[:, None].to(next(online.parameters()).device)

    @staticmethod
    def why_not(network: nn.Module) -> str | None:
        """Why the gradient of a network cannot be taken by hand; None when it can.

        Example:
            >>> QByHand.why_not(nn.Linear(2, 2))
            'the network is a Linear, not a QNetwork'
        """
        if type(network) is not QNetwork:
            return f"the network is a {type(network).__name__}, not a QNetwork"
        if any(True for _ in network.features.parameters()):
            return "the network learns its features"
        if network.n_atoms > 1:
            return "its values are distributions"
        streams = (network.value, network.advantage) if network.dueling else (network.net,)
        for stream in streams:
            reason = why_not_chain(stream)
            if reason is not None:
                return f"the network {reason}"
        return None

    @classmethod
    def of(cls, online: Any, target: Any) -> QByHand | None:
        """The gradient by hand where that is possible, None elsewhere."""
        return cls(online, target) if cls.why_not(online) is None else None

    def gradient(
        self,
        obs: Any,
        actions: Tensor,
        rewards: Tensor,
        next_obs: Any,
        discounts: Tensor,
        *,
        weights: Tensor | None = None,
        next_masks: Tensor | None = None,
        double: bool = True,
        huber: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Fills the gradient of the online network with that of the loss.

        Args:
            obs: [B, ...].
            actions: [B, *action shape].
            rewards: [B].
            next_obs: [B, ...].
            discounts: [B].
            weights: [B] importance of each row, or None for ones.
            next_masks: [B, n_masks] options allowed at `next_obs`, or None.
            double: Let the online network choose the action that the target network values.
            huber: The Huber loss, otherwise the square.

        Returns:
            Loss, mean value and mean absolute error [3]; the errors [B] of the values.
        """
        n_rows = len(rewards)
        x, next_x = self._features.forward(obs), self._features.forward(next_obs)
        next_q = self._target.forward(next_x.t())
        if double:
            both = self._online.forward(torch.cat((x, next_x)).t())
            q, chooser = both[:, :n_rows], both[:, n_rows:]
        else:
            q = self._online.forward(x.t())
            chooser = next_q
        best = self._greedy(chooser, next_masks)
        targets = torch.addcmul(rewards, discounts, self._mean(next_q.gather(0, best)))

        chosen = actions.reshape(n_rows, -1).t()
        if len(self._starts) > 1:
            chosen = chosen + self._starts
        values = self._mean(q.gather(0, chosen))
        errors = values - targets
        if huber:
            slopes = errors.clamp(-1.0, 1.0)
            rows = slopes * torch.sub(errors, slopes, alpha=0.5)
        else:
            slopes, rows = 2.0 * errors, errors.square()
        if weights is not None:
            slopes, rows = slopes * weights, rows * weights

        grad = torch.zeros_like(q, memory_format=torch.contiguous_format)
        grad.scatter_(0, chosen, (slopes / chosen.numel()).expand(chosen.shape))
        self._online.backward(grad)
        return torch.stack((rows, values, errors.abs())).mean(1), errors

    def _greedy(self, q: Tensor, masks: Tensor | None) -> Tensor:
        """Rows [k, B] of the best options in values [n, B]."""
        if masks is not None:
            q = q.masked_fill(~self._branches.options(masks).t(), -math.inf)
        if len(self._starts) == 1:
            return q.max(0, keepdim=True).indices  # argmax takes twice as long
        parts = q.split(self._branches.sizes)
        return torch.cat([part.max(0, keepdim=True).indices for part in parts]) + self._starts

    def _mean(self, chosen: Tensor) -> Tensor:
        """[B] means of [k, B]."""
        return chosen[0] if len(chosen) == 1 else chosen.mean(0)


class _Duel:
    """A dueling network on batches with features along the rows."""

    def __init__(self, network: QNetwork) -> None:
        self._trunk = Chain(network.trunk) if len(network.trunk) else None
        self._value = Chain(network.value)
        self._advantage = Chain(network.advantage)
        self._sizes = network.branches.sizes

    def forward(self, x: Tensor) -> Tensor:
        if self._trunk is not None:
            x = self._trunk.forward(x)
        return self._centred(self._advantage.forward(x)) + self._value.forward(x)

    def backward(self, grad: Tensor) -> None:
        trunk_grad = None
        if self._trunk is not None:
            trunk_grad = grad.new_zeros(self._trunk.out_features, grad.shape[1])
        self._value.backward(grad.sum(0, keepdim=True), trunk_grad)
        self._advantage.backward(self._centred(grad), trunk_grad)
        if self._trunk is not None and trunk_grad is not None:
            self._trunk.backward(trunk_grad)

    def _centred(self, rows: Tensor) -> Tensor:
        """Less the mean of each choice; a projection, and so its own transpose."""
        parts = rows.split(self._sizes)
        return torch.cat([part - part.mean(0, keepdim=True) for part in parts])
