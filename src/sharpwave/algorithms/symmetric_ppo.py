"""PPO of symmetric tasks (Mittal et al., 2024, arXiv:2403.04359)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from gymnasium import spaces

from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.core.lazy import losses, torch
from sharpwave.core.tree import leaves
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch

if TYPE_CHECKING:
    from torch import Tensor

COPIED = ("log_probs", "values", "advantages", "returns", "masks")
"""Columns that are the same for all forms of a row."""


class SymmetricPPOLearner(PPOLearner):
    r"""PPO of a task that looks the same in a mirror: a robot with a left and a right leg.

    A subclass says by `forms` what else a step could have been. With `augments` each minibatch
    learns from all forms of its rows. With `mirror_coef` the policy is drawn towards doing in a
    mirrored situation what is the mirror image of what it does,

        L' = L + c mean((μ(Ms) − M μ(s))²),

    whose right half gets no gradient.

    Example:
        >>> class Balanced(SymmetricPPOLearner):
        ...     def forms(self, obs, actions):
        ...         obs = None if obs is None else torch.cat((obs, -obs))
        ...         return obs, None if actions is None else torch.cat((actions, 1 - actions))
        >>> agent = sw.PPO("CartPole-v1", learner=Balanced, n_envs=4, n_steps=32)
        >>> metrics = agent.train(256)
    """

    augments: ClassVar[bool] = True
    """Learn from all forms of the rows of a minibatch."""
    mirror_coef: ClassVar[float] = 0.0
    """Coefficient c of the mirror loss; 0 leaves it out."""

    def forms(self, obs: Any, actions: Tensor | None) -> tuple[Any, Tensor | None]:
        """All forms of n steps.

        Args:
            obs: Observations [n, ...]; None where they are not wanted.
            actions: Actions [n, ...] as the policy gave them; None where they are not wanted.

        Returns:
            Both of [k n, ...]: first what was given, then each mirrored form of it.
        """
        raise NotImplementedError(f"{type(self).__name__} must have forms(obs, actions)")

    def build(self) -> None:
        """Make the policy and its optimizer."""
        if type(self).forms is SymmetricPPOLearner.forms:
            raise TypeError(f"{type(self).__name__} must have forms(obs, actions)")
        if self.config.recurrent is not None:
            raise ValueError(
                "recurrent must be None where rows are mirrored, which are single steps, got "
                f"{self.config.recurrent!r}"
            )
        if self.mirror_coef and not isinstance(self.action_space, spaces.Box):
            raise ValueError(
                f"mirror_coef must be 0 unless actions are continuous, got {self.mirror_coef} for "
                f"{self.action_space}"
            )
        super().build()

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one minibatch with its other forms, and what is logged of it."""
        mirrored = self.mirrored(batch)
        loss, metrics = super().loss(mirrored if self.augments else batch)
        if self.augments:
            metrics = {**metrics, "approx_kl": self.own_kl(batch)}
        if self.mirror_coef:
            mirror_loss = self.mirror_loss(mirrored.obs, len(batch.log_probs))
            loss = loss + self.mirror_coef * mirror_loss
            metrics = {**metrics, "mirror_loss": mirror_loss.detach(), "loss": loss.detach()}
        return loss, metrics

    def mirrored(self, batch: OnPolicyBatch) -> OnPolicyBatch:
        """A minibatch [n, ...] with the other forms of its rows, [k n, ...]."""
        obs, actions = self.forms(batch.obs, batch.actions)
        n = len(batch.log_probs)
        _check(obs, actions, n, type(self).__name__)
        assert actions is not None
        k = len(actions) // n
        copied = {name: getattr(batch, name) for name in COPIED}
        repeated: dict[str, Any] = {
            name: None if column is None else column.repeat(k, *[1] * (column.ndim - 1))
            for name, column in copied.items()
        }
        return replace(batch, obs=obs, actions=actions, **repeated)

    def own_kl(self, batch: OnPolicyBatch) -> Tensor:
        """Divergence of the policy from the old one where the old one acted."""
        with torch.no_grad():
            log_probs, *_ = self.policy.evaluate(batch.obs, batch.actions, masks=batch.masks)
            return losses.approx_kl(log_probs - batch.log_probs, batch.weights)

    def mirror_loss(self, obs: Any, n: int) -> Tensor:
        """The distance of the policy from symmetry.

        Args:
            obs: Observations [k n, ...], all forms of n rows.
            n: Number of rows.
        """
        means = self.policy.modes(obs)
        _, wanted = self.forms(None, means[:n])
        assert wanted is not None
        return torch.nn.functional.mse_loss(means[n:], wanted[n:].detach())


def _check(obs: Any, actions: Any, n: int, owner: str) -> None:
    """Raise where forms of n rows are not k n rows."""
    counts = {len(leaf) for _, leaf in leaves(obs)} | {len(actions)}
    count = next(iter(counts))
    if len(counts) > 1 or count < 2 * n or count % n:
        raise ValueError(
            f"forms of {owner} must give k times {n} rows of observations and actions, k at least "
            f"2, got {sorted(counts)}"
        )
