"""Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from sharpwave import learn
from sharpwave.lazy import losses, nn, torch
from sharpwave.train.algorithm import Metrics
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.train.cuda_graph import GraphedSteps
from sharpwave.train.native_policy import NativePolicy
from sharpwave.train.on_policy import OnPolicy, OnPolicyConfig
from sharpwave.train.schedules import ScheduleLike, value_at

METRICS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "loss",
    "grad_norm",
)
"""What a gradient step measures, in order."""


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

    def prepare(self) -> None:
        """Make what `update` needs beside policy and optimiser."""
        self.clip = torch.tensor(0.0, device=self.device)
        self.moved_too_far = torch.tensor(0.0, device=self.device)
        self.by_hand = nn.ByHand.of(self.flat, self.config.batch_size)
        self.graphs = GraphedSteps() if self.config.cuda_graph else None
        if self.config.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]

    @property
    def minibatch(self) -> int:
        """Rows of a gradient step."""
        return min(self.config.batch_size, super().minibatch)

    def make_optimizer(self) -> nn.Adam | learn.Adam:
        """Adam with the ε of the paper's code."""
        if self.native is not None:
            return learn.Adam(self.native.flat, lr=0.0, eps=1e-5)
        return nn.Adam(self.flat, lr=0.0, eps=1e-5)

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set learning rate and clip range."""
        super().follow_schedules(progress_remaining)
        self.clip_range = value_at(self.config.clip_eps, progress_remaining)
        if self.native is None:
            self.clip.fill_(self.clip_range)

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: `n_epochs` passes of gradient steps on shuffled minibatches."""
        if self.native is not None:
            return self.native_update(self.native, batch)
        config = self.config
        if self.graphs is not None:
            batch = self.graphs.take(batch)
        self.load(batch)
        self.moved_too_far.zero_()

        step = partial(self.gradient_step, batch)
        if self.graphs is not None:
            step = partial(self.graphs.run, step)

        steps: list[torch.Tensor] = []
        for _ in range(config.n_epochs):
            steps += map(step, batch.shuffled(config.batch_size, self.generator))
            if config.target_kl is not None and self.device.type == "cpu" and self.moved_too_far:
                break
        means = torch.stack(steps).mean(0)
        return {
            **dict(zip(METRICS, means.unbind(), strict=True)),
            "explained_variance": losses.explained_variance(
                batch.values, batch.returns, batch.weights
            ),
        }

    def native_update(self, native: NativePolicy, batch: OnPolicyBatch) -> Metrics:
        """What `update` does, in native code."""
        config = self.config
        return native.ppo_update(
            batch,
            self.optimizer,
            n_epochs=config.n_epochs,
            batch_size=config.batch_size,
            clip=self.clip_range,
            vf_coef=config.vf_coef,
            ent_coef=config.ent_coef,
            clip_vloss=config.clip_vloss,
            normalize=config.normalize_advantages,
            max_grad_norm=config.max_grad_norm,
            target_kl=config.target_kl,
        )

    def gradient_step(self, batch: OnPolicyBatch, rows: torch.Tensor) -> torch.Tensor:
        """One step on some rows of the batch; its `METRICS`."""
        metrics = self.gradient(batch, rows)
        norm = self.flat.clip_grad_norm(self.config.max_grad_norm)
        if self.config.target_kl is None:
            self.optimizer.step()
        else:
            # Once too far, always too far; the optimiser knows without waiting for the device.
            too_far = metrics[METRICS.index("approx_kl")] > 1.5 * self.config.target_kl
            self.moved_too_far.copy_(torch.maximum(self.moved_too_far, too_far.float()))
            self.optimizer.step(skip=self.moved_too_far)
        return torch.cat((metrics, norm[None]))

    def load(self, batch: OnPolicyBatch) -> None:
        """Make a batch ready for `gradient`."""
        if self.by_hand is not None:
            self.by_hand.load(
                batch.obs,
                batch.actions,
                batch.advantages,
                batch.returns,
                log_probs=batch.log_probs,
                old_values=batch.values,
                masks=batch.masks,
            )

    def gradient(self, batch: OnPolicyBatch, rows: torch.Tensor) -> torch.Tensor:
        """Fill the flat gradient with that of `loss`: by hand for known networks."""
        config = self.config
        if self.by_hand is not None:
            return self.by_hand.ppo_gradient(
                rows,
                clip=self.clip,
                vf_coef=config.vf_coef,
                ent_coef=config.ent_coef,
                clip_vloss=config.clip_vloss,
                normalize=config.normalize_advantages,
            )
        self.flat.zero_grad()
        loss, metrics = self.loss(batch.rows(rows))
        loss.backward()
        return metrics

    def loss(self, batch: OnPolicyBatch) -> tuple[torch.Tensor, torch.Tensor]:
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

        with torch.no_grad():
            kl = losses.approx_kl(log_ratio, weights)
            clipped = losses.clip_fraction(log_ratio, self.clip, weights)
            return loss, torch.stack((policy_loss, value_loss, entropy_mean, kl, clipped, loss))
