"""Behavioral cloning (Pomerleau, 1991), of all of a dataset or of its best episodes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import spaces

from sharpwave.agents import OfflineAgent
from sharpwave.buffers import OfflineDatasetBuffer
from sharpwave.config.offline import OfflineConfig
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BCConfig(OfflineConfig):
    """Options of BC."""

    has_critic: ClassVar[bool] = False

    continuous: bool | None = None
    """Treat actions as continuous or as discrete; None infers it from the environment, or from the
    dtype of the dataset."""
    top_share: float = 1.0
    """Fraction of the episodes to learn from: those with the highest discounted return."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("top_share")
        self.require_range("top_share", 0, 1)


class BCLearner(TorchLearner):
    r"""The network and loss of BC.

    Continuous actions, scaled to [-1, 1], and discrete ones:

        L = mean((π(s) − a)²),    L = −mean(log π(a|s))
    """

    config: BCConfig
    losses = ("loss",)

    def build(self) -> None:
        """Make the policy and its optimizer."""
        kind: Any = nn.DeterministicActor if self.is_continuous else nn.CategoricalActor
        size = self.action_dim if self.is_continuous else int(self.action_space.n)  # type: ignore[attr-defined]
        actor = kind(self.observation_space, size, **self.network_options("actor"))
        self.policy = self.add("policy", actor, self.make_optimizer)

    @property
    def is_continuous(self) -> bool:
        """True if actions are continuous."""
        return isinstance(self.action_space, spaces.Box)

    def act(self, obs: Any, *, explore: bool, masks: Any = None, **_: Any) -> Acted:
        """Actions in [-1, 1], or integers: the mode of the policy, or samples."""
        if self.is_continuous:
            return Acted(self.policy.mode(obs))
        if explore:
            return Acted(self.policy.explore(obs, masks, self.explore_generator))
        return Acted(self.policy.mode(obs, masks))

    def update_kind(self) -> Hashable:
        """All updates are alike."""
        return "step"

    def update(self, batch: ReplayBatch) -> Metrics:
        """One step of the policy."""
        loss = self.loss(batch)
        self.descend("policy", loss)
        self.updates += 1
        return {"loss": loss.detach()}

    def loss(self, batch: ReplayBatch) -> Tensor:
        """The behavioral cloning loss: squared error, or negative log-likelihood."""
        functional = torch.nn.functional
        if self.is_continuous:
            return functional.mse_loss(self.policy(batch.obs), batch.actions)
        return functional.cross_entropy(self.policy(batch.obs), batch.actions.view(-1))


class BC(OfflineAgent):
    """BC: behavior cloning, offline.

    `BCLearner` has the loss.

    With `top_share` only the episodes with the highest return Σ γ^t r_t are learned from, which
    makes much of a dataset whose episodes differ (10 % BC; Chen et al., 2021, arXiv:2106.01345).

    Example:
        >>> import numpy as np
        >>> obs = np.random.default_rng(0).normal(size=(500, 3)).astype("f")
        >>> done = np.arange(500) % 50 == 49
        >>> bc = BC((obs, obs, np.tanh(obs[:, :1]), np.zeros(500), done), hidden=32, seed=0)
        >>> bc.train(100)["loss"] < 0.3
        True
        >>> bc.predict(obs[0]).shape
        (1,)
    """

    name = "bc"
    Config = BCConfig
    Learner = BCLearner
    config: BCConfig

    def prepare(self, dataset: Any) -> Any:
        """The fraction `top_share` of the episodes, by return."""
        if self.config.top_share == 1.0:
            return dataset
        if not isinstance(dataset, OfflineDatasetBuffer):
            raise TypeError(
                f"top_share needs a dataset of whole episodes, got {type(dataset).__name__}"
            )
        return dataset.best_episodes(self.config.top_share, self.config.gamma)

    def kind_of_actions(self) -> str | None:
        """The kind of actions that the configuration asks for; None to infer it."""
        kinds = {None: None, True: "continuous", False: "discrete"}
        return kinds[self.config.continuous]
