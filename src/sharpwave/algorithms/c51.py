"""Categorical DQN (Bellemare et al., 2017, arXiv:1707.06887)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.dqn import DQN, DQNConfig, DQNLearner
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import losses, torch
from sharpwave.learners.replay import ReplayBatch
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class C51Config(DQNConfig):
    """Options of C51."""

    learning_rate: ScheduleLike = 2.5e-4
    """Learning rate; a schedule follows the progress of the run."""
    adam_eps: float = 0.01 / 32
    """ε of Adam: added to the root of its mean square, for numerical stability."""
    loss: Literal["cross_entropy"] = "cross_entropy"  # type: ignore[assignment]
    """Loss function: cross-entropy of categorical distributions of returns."""
    n_atoms: int = 51
    """Number of atoms: returns that have a probability."""
    v_min: float = -10.0
    """Return of the lowest atom."""
    v_max: float = 10.0
    """Return of the highest atom."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        if self.n_atoms < 2:
            raise ValueError(f"n_atoms must be at least 2, got {self.n_atoms}")
        if not self.v_min < self.v_max:
            raise ValueError(f"v_max must be above v_min, {self.v_min}, got {self.v_max}")


class C51Learner(DQNLearner):
    r"""The network and loss of C51.

    The return of an action is one of `n_atoms` atoms z from `v_min` to `v_max`, with the
    probabilities p(s, a) that the network gives; the action with the highest mean is the greedy
    one. With m the distribution of r + γz for the greedy next action, projected on the atoms,

        L = −mean(w · Σ_i m_i log p_i(s, a)).

    Of an action of several choices, p is the mean of the distributions of what it chooses. The
    loss of a row is its priority. All options of `DQN` but the loss are there.
    """

    config: C51Config

    def build(self) -> None:
        """Make the network, its target network, its optimizer, and the atoms."""
        config = self.config
        self.atoms = torch.linspace(config.v_min, config.v_max, config.n_atoms, device=self.device)
        super().build()

    @property
    def n_atoms(self) -> int:
        """Number of atoms of a distribution of returns."""
        return self.config.n_atoms

    def values(self, output: Tensor) -> Tensor:
        """The mean returns [B, n] of logits [B, n, n_atoms]."""
        return output.softmax(-1) @ self.atoms

    def loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of a batch, the mean returns [B] of its actions and the loss of each row [B]."""
        with torch.no_grad():
            next_output, best = self.next_best(batch)
            next_probs = self.branches.chosen(next_output, best).softmax(-1).mean(1)
            targets = losses.project_categorical(
                next_probs, batch.rewards, batch.discounts, self.atoms
            )
        chosen = self.branches.chosen(self.policy(batch.obs), batch.actions).log_softmax(-1)
        log_probs = chosen.logsumexp(1) - math.log(chosen.shape[1])
        rows = losses.categorical_cross_entropy(log_probs, targets)
        values = log_probs.detach().exp() @ self.atoms
        return losses.weighted_mean(rows, batch.weights), values, rows


class C51(OnlineAgent):
    """C51: DQN with a categorical distribution of returns.

    `C51Learner` has the loss.

    Args:
        q_network: A module `q_network(obs) -> logits` [B, n, n_atoms] in place of the built one.

    Example:
        >>> c51 = C51("CartPole-v1", v_min=0.0, v_max=100.0, learning_starts=100, hidden=(32, 32))
        >>> metrics = c51.train(200)
        >>> c51.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "c51"
    Config = C51Config
    Learner = C51Learner
    Loop = OffPolicyLoop
    takes = DQN.takes
