"""Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sharpwave.lazy import losses, nn, torch
from sharpwave.train.algorithm import Metrics
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.train.on_policy import OnPolicy, OnPolicyConfig
from sharpwave.train.schedules import ScheduleLike, value_at


@dataclass(frozen=True, kw_only=True)
class PPOConfig(OnPolicyConfig):
    """Options of PPO."""

    n_epochs: int = 4
    """Passes over each rollout."""
    batch_size: int = 256
    """Steps in a minibatch; recurrent policies take whole environments of about that many."""
    clip_eps: ScheduleLike = 0.2
    """How far the ratio of new to old probability may move with gain."""
    clip_vloss: bool = False
    """Clip the change of values by `clip_eps` too."""
    normalize_advantages: bool = True
    """Give the advantages of each minibatch mean 0 and deviation 1."""
    anneal_lr: bool = True
    """Let a constant learning rate fall linearly to 0 over the run."""
    target_kl: float | None = None
    """Skip the rest of an update once the policy has moved by 1.5 times this divergence."""
    compile: bool = False
    """Compile the loss with torch.compile."""
    cuda_graph: bool = False
    """Replay each gradient step as one CUDA graph."""

    aliases: ClassVar[dict[str, str]] = {**OnPolicyConfig.aliases, "clip_range": "clip_eps"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_epochs", "batch_size", "clip_eps", "target_kl")


class PPO(OnPolicy):
    r"""PPO with a clipped surrogate.

    With the ratio r = π(a|s) / π_old(a|s) and the advantage A of the rollout,

        L = mean(max(−A r, −A clip(r, 1 − ε, 1 + ε))) + c_v ½ mean((V − R)²) − c_H mean(H(π)),

    minimised over `n_epochs` passes of shuffled minibatches by Adam, gradients clipped in norm.

    Example:
        >>> ppo = PPO("CartPole-v1", n_envs=4, n_steps=64)
        >>> metrics = ppo.train(512)
        >>> ppo.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "ppo"
    Config = PPOConfig
    config: PPOConfig

    def build(self) -> None:
        """Make the policy, Adam over its parameters, and the collector."""
        super().build()
        self.clip = torch.tensor(0.0, device=self.device)
        self.by_hand: Any = None
        if self.config.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]

    def make_optimizer(self) -> nn.Adam:
        """Adam with the ε of the paper's code."""
        return nn.Adam(self.flat, lr=0.0, eps=1e-5)

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set learning rate and clip range."""
        super().follow_schedules(progress_remaining)
        self.clip.fill_(value_at(self.config.clip_eps, progress_remaining))

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps."""
        config = self.config
        steps: list[Metrics] = []
        moved_too_far = torch.zeros((), device=self.device)
        for _ in range(config.n_epochs):
            for minibatch in batch.minibatches(config.batch_size, self.generator):
                metrics = self.gradient(minibatch)
                metrics["grad_norm"] = self.flat.clip_grad_norm(config.max_grad_norm)
                if config.target_kl is not None:
                    # Sticky, and known to the optimiser without waiting for the device.
                    too_far = (metrics["approx_kl"] > 1.5 * config.target_kl).float()
                    moved_too_far = torch.maximum(moved_too_far, too_far)
                self.optimizer.step(moved_too_far if config.target_kl is not None else None)
                steps.append(metrics)
            if config.target_kl is not None and self.device.type == "cpu" and moved_too_far:
                break
        means = {name: torch.stack([step[name] for step in steps]).mean() for name in steps[0]}
        means["explained_variance"] = losses.explained_variance(
            batch.values.flatten(), batch.returns.flatten()
        )
        return means

    def gradient(self, batch: OnPolicyBatch) -> Metrics:
        """Fill the flat gradient with that of `loss`: by hand for known networks."""
        if self.by_hand is not None:
            return self.by_hand.ppo_gradient(batch, self.clip, self.config)
        self.flat.zero_grad()
        loss, metrics = self.loss(batch)
        loss.backward()
        return metrics

    def loss(self, batch: OnPolicyBatch) -> tuple[torch.Tensor, Metrics]:
        """The loss of one minibatch, and what it is made of."""
        config = self.config
        weights = batch.weights
        log_probs, entropy, values = self.policy.evaluate(
            batch.obs, batch.actions, state=batch.state, starts=batch.starts, masks=batch.masks
        )

        # The policy gains from moving only while the ratio stays within the clip range.
        advantages = batch.advantages
        if config.normalize_advantages:
            advantages = losses.normalize(advantages, weights)
        log_ratio = log_probs - batch.log_probs
        policy_loss = losses.clipped_surrogate(log_ratio, advantages, self.clip, weights)

        # The values follow the returns of the rollout.
        if config.clip_vloss:
            value_loss = losses.clipped_value_loss(
                values, batch.values, batch.returns, self.clip, weights
            )
        else:
            value_loss = losses.value_loss(values, batch.returns, weights)

        # Entropy keeps the policy from deciding too early.
        entropy_mean = losses.mean(entropy, weights)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy_mean
        return loss, {
            "loss": loss.detach(),
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy_mean.detach(),
            "approx_kl": losses.approx_kl(log_ratio.detach(), weights),
            "clip_fraction": losses.clip_fraction(log_ratio.detach(), self.clip, weights),
        }
