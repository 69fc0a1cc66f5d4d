"""Networks and batches of Q-learning, and its gradient by autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from sharpwave import losses
from sharpwave.learners.replay import ReplayBatch
from sharpwave.nn import FlatParameters, QNetwork

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5),
    "two actions": spaces.Discrete(2),
    "multi discrete": spaces.MultiDiscrete([2, 4, 3]),
    "multi binary": spaces.MultiBinary(3),
}


class Case:
    """An online and a target network away from their start, and a batch."""

    def __init__(
        self,
        actions: str = "discrete",
        *,
        n_rows: int = 32,
        masks: bool = False,
        weights: bool = False,
        **options: Any,
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        options = {"hidden": (16, 12), **options}
        self.online = QNetwork(
            spaces.Box(-np.inf, np.inf, (2, 3)),
            ACTIONS[actions],
            generator=np.random.default_rng(0),
            **options,
        )
        self.target = copy.deepcopy(self.online)
        self.flat, self.flat_target = FlatParameters(self.online), FlatParameters(self.target)
        for flat in (self.flat, self.flat_target):
            flat.data.add_(0.3 * torch.randn(len(flat.data), generator=generator))
        self.flat.grad.fill_(float("nan"))  # what is left over from before must not matter
        branches = self.online.branches
        self.obs = torch.randn(n_rows, 2, 3, generator=generator)
        self.next_obs = torch.randn(n_rows, 2, 3, generator=generator)
        self.actions = branches.greedy(torch.rand(n_rows, branches.n, generator=generator))
        self.rewards = torch.randn(n_rows, generator=generator)
        self.discounts = 0.9 * (torch.rand(n_rows, generator=generator) < 0.7).float()
        self.weights = torch.rand(n_rows, generator=generator) if weights else None
        self.next_masks = None
        if masks:
            self.next_masks = torch.rand(n_rows, branches.n_masks, generator=generator) < 0.5
            self.next_masks[:, branches.starts % branches.n_masks] = True

    @property
    def batch(self) -> ReplayBatch:
        return ReplayBatch(
            self.obs,
            self.actions,
            self.rewards,
            self.next_obs,
            self.discounts,
            weights=self.weights,
            next_masks=self.next_masks,
        )

    def by_autograd(self, *, double: bool, huber: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Gradient, metrics and errors in float64."""
        online, target = copy.deepcopy(self.online).double(), copy.deepcopy(self.target).double()
        online.features = target.features = torch.nn.Flatten()  # type: ignore[assignment]
        batch = self.batch
        batch.obs, batch.next_obs = batch.obs.double(), batch.next_obs.double()
        loss, metrics, errors = q_loss(online, target, batch, double=double, huber=huber)
        grads = torch.autograd.grad(loss, list(online.parameters()))
        return torch.cat([grad.flatten() for grad in grads]), metrics, errors


def q_loss(
    online: QNetwork, target: QNetwork, batch: ReplayBatch, *, double: bool, huber: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of Q-learning, its metrics and its errors."""
    branches = online.branches
    with torch.no_grad():
        next_q = target(batch.next_obs)
        best = branches.greedy(online(batch.next_obs) if double else next_q, batch.next_masks)
        targets = batch.rewards + batch.discounts * branches.mean_of(next_q, best)
    values = branches.mean_of(online(batch.obs), batch.actions)
    errors = values - targets
    loss = losses.weighted_mean(losses.huber(errors) if huber else errors.square(), batch.weights)
    metrics = torch.stack((loss, values.mean(), errors.abs().mean()))
    return loss, metrics.detach(), errors.detach()
