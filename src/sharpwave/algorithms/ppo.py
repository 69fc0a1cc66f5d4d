"""Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents import OnlineAgent
from sharpwave.config.on_policy import ClippedConfig, OnPolicyConfig
from sharpwave.config.schedules import Adaptive
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.fused import FusedPolicyLearner
from sharpwave.learners.native import NativePPOLearner
from sharpwave.learners.policy_learner import PolicyLearner
from sharpwave.loops.on_policy import OnPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ClippedConfig, OnPolicyConfig):
    """Options of PPO."""

    cuda_graph: bool | None = None
    """Replay gradient steps, and steps in environments on the device, as CUDA graphs. None does so
    on CUDA, unless the network is your own."""

    aliases: ClassVar[dict[str, str]] = {**OnPolicyConfig.aliases, **ClippedConfig.aliases}
    divided: ClassVar[tuple[str, ...]] = ("n_envs", "batch_size")


class PPOLearner(PolicyLearner):
    r"""The loss of PPO and its minibatches.

    With the ratio r = π(a|s) / π_old(a|s) and the advantage A of the rollout,

        L = mean(max(−A r, −A clip(r, 1 − ε, 1 + ε))) + c_v ½ mean((V − R)²) − c_H mean(H(π)),

    minimized over `n_epochs` passes of shuffled minibatches by Adam, gradients clipped in norm.
    """

    config: PPOConfig
    losses = ("loss",)
    captured = "step"

    def build(self) -> None:
        """Make the policy, its optimizer, and what changes on the device during an update."""
        super().build()
        if isinstance(rate := self.config.learning_rate, Adaptive):
            self.optimizers["policy"].set_lr(rate.start)
        self.clip = torch.tensor(0.0, device=self.device)
        self.value_clip = torch.tensor(0.0, device=self.device)
        self.moved_too_far = torch.tensor(0.0, device=self.device)
        self.measured: tuple[str, ...] = ()

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with the ε of the paper's code."""
        return nn.Adam(flat, lr=0.0, eps=1e-5)

    def follow(self, progress_remaining: float) -> None:
        """Set learning rate and clip ranges."""
        super().follow(progress_remaining)
        clip, value_clip = self.config.clip_ranges(progress_remaining)
        self.clip.fill_(clip)
        self.value_clip.fill_(value_clip)

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps on shuffled minibatches."""
        config = self.config
        self.moved_too_far.zero_()
        steps: list[Tensor] = []
        for _ in range(config.n_epochs):
            steps += [self.step(batch, rows) for rows in self.minibatches(batch)]
            if config.target_kl is not None and self.device.type == "cpu" and self.moved_too_far:
                break
        self.count(batch)
        self.updates += 1
        means = torch.stack(steps).mean(0)
        return {
            **dict(zip(self.measured, means.unbind(), strict=True)),
            "explained_variance": losses.explained_variance(
                batch.values, batch.returns, batch.weights
            ),
        }

    def minibatches(self, batch: OnPolicyBatch) -> Iterable[Tensor | None]:
        """The rows of each gradient step of an epoch; None stands for all."""
        rows = self.config.minibatch_of(batch.log_probs.numel())
        return batch.shuffled(rows, self.generator)

    def step(self, batch: OnPolicyBatch, rows: Tensor | None) -> Tensor:
        """One gradient step on some rows of the batch; its metrics, which `measured` names."""
        config, metrics = self.config, self.differentiate(batch, rows)
        optimizer: Any = self.optimizers["policy"]
        if config.adapts_rate or config.target_kl is not None:
            kl = self.ranks.mean(metrics["approx_kl"].clone())
        if config.adapts_rate:  # by steps that are taken, and the one that went too far
            moved = kl if config.target_kl is None else kl * (1.0 - self.moved_too_far)
            optimizer.adapt_lr(moved, config.desired_kl, Adaptive.bounds)
        if config.target_kl is None:
            norm = optimizer.clip_and_step(config.max_grad_norm)
        else:
            # Once too far, always too far; the optimizer knows without waiting for the device.
            too_far = kl > 1.5 * config.target_kl
            self.moved_too_far.copy_(torch.maximum(self.moved_too_far, too_far.float()))
            norm = optimizer.clip_and_step(config.max_grad_norm, skip=self.moved_too_far)
        self.measured = (*metrics, "grad_norm")
        with torch.no_grad():
            return torch.stack((*metrics.values(), norm))

    def differentiate(self, batch: OnPolicyBatch, rows: Tensor | None) -> Metrics:
        """Set the gradient to that of the loss of some rows; what is logged of the loss."""
        with self.precision():
            loss, metrics = self.loss(batch.rows(rows))
            self.flat.backward(loss)
        return metrics

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one minibatch, and what is logged of it: tensors of one number by name."""
        config = self.config
        weights = batch.weights
        log_probs, entropy, values = self.policy.evaluate(
            batch.obs, batch.actions, state=batch.state, starts=batch.starts, masks=batch.masks
        )

        # The policy gains from moving only while the ratio stays within the clip range.
        advantages = batch.advantages
        if config.normalize_advantages:
            advantages = losses.normalize(advantages, weights, total=self.total)
        log_ratio = log_probs - batch.log_probs
        policy_loss = losses.clipped_surrogate(log_ratio, advantages, self.clip, weights)

        # The values follow the returns of the rollout.
        if config.clips_values:
            value_loss = losses.clipped_value_loss(
                values, batch.values, batch.returns, self.value_clip, weights
            )
        else:
            value_loss = losses.value_loss(values, batch.returns, weights)

        # Entropy keeps the policy from deciding too early.
        entropy_mean = losses.mean(entropy, weights)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy_mean

        with torch.no_grad():
            return loss, {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy_mean,
                "approx_kl": losses.approx_kl(log_ratio, weights),
                "clip_fraction": losses.clip_fraction(log_ratio, self.clip, weights),
                "loss": loss,
            }


class FusedPPOLearner(FusedPolicyLearner, PPOLearner):
    """`PPOLearner` on a GPU, with kernels in place of what autograd does to single rows."""


class PPO(OnlineAgent):
    """PPO: policy gradient with a clipped surrogate objective, on-policy.

    `PPOLearner` has the loss.

    Example:
        >>> ppo = PPO("CartPole-v1", n_envs=4, n_steps=64)
        >>> metrics = ppo.train(512)
        >>> ppo.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "ppo"
    Config = PPOConfig
    Learner = PPOLearner
    Native = NativePPOLearner
    Fused = FusedPPOLearner
    Loop = OnPolicyLoop
    takes = ("policy",)
    learns_together = True
