"""Distillation of a teacher into a student that acts itself (DAgger: Ross et al., 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gymnasium import spaces

from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.core.lazy import torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch

if TYPE_CHECKING:
    from torch import Tensor


class DistillationLearner(PPOLearner):
    r"""A student that learns to do what a teacher would do where the student gets to.

        L = mean((μ(s) − μ_teacher(s))²)

    over `n_epochs` passes of a rollout of the student's. Rewards, values and the options of PPO's
    loss play no part. A subclass gives `teach`, which may look at entries of the observations that
    the student does not see.

    Example:
        >>> class Student(DistillationLearner):
        ...     def teach(self, obs):
        ...         return -obs[:, 1:2]
        >>> agent = sw.PPO("Pendulum-v1", learner=Student, n_envs=4, n_steps=32, n_epochs=1)
        >>> agent.train(128)["behavior_loss"] > 0
        True
    """

    distance: ClassVar[Literal["mse", "huber"]] = "mse"
    """Distance of two actions: the square, or beyond 1 the Huber loss."""
    in_order: ClassVar[bool] = False
    """Minibatches are steps one after another, not drawn at random."""

    def teach(self, obs: Any) -> Tensor:
        """Actions [B, ...] of the teacher for observations [B, ...], as a policy gives them."""
        raise NotImplementedError(f"{type(self).__name__} must have teach(obs)")

    def build(self) -> None:
        """Make the student and its optimizer."""
        if type(self).teach is DistillationLearner.teach:
            raise TypeError(f"{type(self).__name__} must have teach(obs)")
        if not isinstance(self.action_space, spaces.Box):
            raise TypeError(
                f"action_space must be Box for {type(self).__name__}, got {self.action_space}"
            )
        if self.config.target_kl is not None:
            raise ValueError(
                f"target_kl must be None for {type(self).__name__}, got {self.config.target_kl}"
            )
        super().build()

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps on minibatches."""
        steps = [
            self.step(batch, rows)
            for _ in range(self.config.n_epochs)
            for rows in self.minibatches(batch)
        ]
        self.updates += 1
        self.count(batch)
        return dict(zip(self.measured, torch.stack(steps).mean(0).unbind(), strict=True))

    def minibatches(self, batch: OnPolicyBatch) -> Iterable[Tensor | None]:
        """The rows of each gradient step of an epoch."""
        if not self.in_order or batch.is_sequence:
            return super().minibatches(batch)
        n = len(batch.log_probs)
        rows = torch.arange(n, device=self.device)
        parts: tuple[Tensor, ...] = rows.split(self.config.minibatch_of(n))
        return parts

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one minibatch, and what is logged of it."""
        with torch.no_grad():
            wanted = self.teach(batch.obs)
        actions = self.policy.modes(batch.obs, state=batch.state, starts=batch.starts)
        if wanted.shape != actions.shape:
            raise ValueError(
                f"teach of {type(self).__name__} must give actions {tuple(actions.shape)}, "
                f"got {tuple(wanted.shape)}"
            )
        functional = torch.nn.functional
        distance = functional.mse_loss if self.distance == "mse" else functional.huber_loss
        loss = distance(actions, wanted)
        return loss, {"behavior_loss": loss.detach()}
