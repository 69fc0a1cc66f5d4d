"""Behavioural cloning (Pomerleau, 1991), of all of a dataset or of its best episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sharpwave.buffers import OfflineDatasetBuffer
from sharpwave.lazy import nn, torch
from sharpwave.train.offline import OfflineAlgorithm, OfflineConfig
from sharpwave.train.replay import ReplayBatch

METRICS = ("loss",)
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class BCConfig(OfflineConfig):
    """Options of BC."""

    continuous: bool | None = None
    """Whether actions are continuous; what the environment says, or the type of the data, when
    none is given."""
    top_share: float = 1.0
    """Share of the episodes, those with the highest discounted return, to learn from."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("top_share")
        self.require_range("top_share", 0, 1)


class BC(OfflineAlgorithm):
    r"""BC: do as the dataset does.

    Continuous actions, scaled to [-1, 1], and discrete ones:

        L = mean((π(s) − a)²),    L = −mean(log π(a|s))

    With `top_share` only the episodes with the highest return Σ γ^t r_t are learnt from, which
    makes much of a dataset whose episodes differ (10 % BC; Chen et al., 2021, arXiv:2106.01345).

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> bc = BC((obs, obs, np.tanh(obs[:, :1]), np.zeros(500), done), hidden=32)
        >>> bc.train(100)["loss"] < 0.3
        True
        >>> bc.predict(obs[0]).shape
        (1,)
    """

    name = "bc"
    Config = BCConfig
    config: BCConfig
    metrics = METRICS
    compiled = ("loss",)

    def prepare(self, dataset: Any) -> Any:
        """The best episodes."""
        if self.config.top_share == 1.0:
            return dataset
        if not isinstance(dataset, OfflineDatasetBuffer):
            raise TypeError(
                f"top_share needs a dataset of whole episodes, got {type(dataset).__name__}"
            )
        return dataset.best_episodes(self.config.top_share, self.config.gamma)

    def kind_of_actions(self) -> str | None:
        """What the configuration says."""
        kinds = {None: None, True: "continuous", False: "discrete"}
        return kinds[self.config.continuous]

    def build_networks(self) -> None:
        """Make the policy and its optimiser."""
        continuous = self.action_scale is not None
        make: Any = nn.DeterministicActor if continuous else nn.CategoricalActor
        self.policy = make(
            self.observation_space,
            self.action_dim if continuous else int(self.action_space.n),
            **self.network_options,
        )
        self.flat = nn.FlatParameters(self.policy, self.device)
        self.optimizer = nn.Adam(self.flat, lr=0.0, eps=1e-8)
        self.register("policy", self.policy, self.optimizer)

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Actions in [-1, 1], or whole numbers: the most likely ones, or drawn."""
        if self.action_scale is not None:
            actions: torch.Tensor = policy.mode(obs)
        elif explore:
            actions = policy.explore(obs, masks, generator)
        else:
            actions = policy.mode(obs, masks)
        return actions

    def graph_key(self) -> str:
        """All steps are alike."""
        return "step"

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """One step of the policy; its `METRICS`."""
        loss = self.loss(batch)
        nn.descend(loss, self.flat, self.optimizer)
        return loss.detach()[None]

    def loss(self, batch: ReplayBatch) -> torch.Tensor:
        """How far the policy is from the dataset."""
        functional = torch.nn.functional
        if self.action_scale is None:
            return functional.cross_entropy(self.policy(batch.obs), batch.actions.view(-1))
        return functional.mse_loss(self.policy(batch.obs), batch.actions)
