"""Advantage Actor-Critic, synchronous (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass

from sharpwave import learn
from sharpwave.lazy import losses, nn, torch
from sharpwave.train.algorithm import Metrics
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.train.native_policy import NativePolicy
from sharpwave.train.on_policy import OnPolicy, OnPolicyConfig
from sharpwave.train.schedules import ScheduleLike

METRICS = ("policy_loss", "value_loss", "entropy", "loss")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class A2CConfig(OnPolicyConfig):
    """Options of A2C."""

    n_steps: int = 5
    """Steps of each environment in a rollout."""
    learning_rate: ScheduleLike = 7e-4
    """Step size of the optimiser; a schedule follows the progress of the run."""
    gae_lambda: float = 1.0
    """λ of generalized advantage estimation: 0 trusts the values, 1 the rewards."""
    normalize_advantages: bool = False
    """Give the advantages of each rollout mean 0 and deviation 1."""
    rms_alpha: float = 0.99
    """Decay of RMSprop's mean square."""
    rms_eps: float = 1e-5
    """Added to the root of RMSprop's mean square."""
    compile: bool = False
    """Compile the loss with torch.compile."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("rms_alpha", 0, 1)
        self.require_positive("rms_eps")


class A2C(OnPolicy):
    r"""A2C: one gradient step on each short rollout.

        L = −mean(A log π(a|s)) + c_v ½ mean((V − R)²) − c_H mean(H(π))

    minimised by RMSprop, gradients clipped in norm.

    Example:
        >>> a2c = A2C("CartPole-v1", n_envs=4)
        >>> metrics = a2c.train(200)
        >>> sorted(metrics)[:3]
        ['entropy', 'episodes', 'explained_variance']
    """

    name = "a2c"
    Config = A2CConfig
    config: A2CConfig

    def prepare(self) -> None:
        """Make what `update` needs beside policy and optimiser."""
        self.by_hand = nn.ByHand.of(self.flat, self.config.n_envs * self.config.n_steps)
        if self.config.compile:
            self.loss = torch.compile(self.loss)  # type: ignore[method-assign]

    def make_optimizer(self) -> nn.RMSprop | learn.RMSprop:
        """RMSprop with the constants of the reference."""
        alpha, eps = self.config.rms_alpha, self.config.rms_eps
        if self.native is not None:
            return learn.RMSprop(self.native.flat, lr=0.0, alpha=alpha, eps=eps)
        return nn.RMSprop(self.flat, lr=0.0, alpha=alpha, eps=eps)

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: one gradient step."""
        if self.native is not None:
            return self.native_update(self.native, batch)
        metrics = self.gradient(batch)
        norm = self.flat.clip_grad_norm(self.config.max_grad_norm)
        self.optimizer.step()
        return {
            **dict(zip(METRICS, metrics.unbind(), strict=True)),
            "grad_norm": norm,
            "explained_variance": losses.explained_variance(
                batch.values, batch.returns, batch.weights
            ),
        }

    def native_update(self, native: NativePolicy, batch: OnPolicyBatch) -> Metrics:
        """What `update` does, in native code."""
        config = self.config
        return native.a2c_update(
            batch,
            self.optimizer,
            vf_coef=config.vf_coef,
            ent_coef=config.ent_coef,
            normalize=config.normalize_advantages,
            max_grad_norm=config.max_grad_norm,
        )

    def gradient(self, batch: OnPolicyBatch) -> torch.Tensor:
        """Fill the flat gradient with that of `loss`: by hand for known networks."""
        config = self.config
        if self.by_hand is not None:
            self.by_hand.load(
                batch.obs, batch.actions, batch.advantages, batch.returns, masks=batch.masks
            )
            measured = self.by_hand.a2c_gradient(
                vf_coef=config.vf_coef,
                ent_coef=config.ent_coef,
                normalize=config.normalize_advantages,
            )
            return torch.cat((measured[:3], measured[5:]))  # neither divergence nor clipping
        self.flat.zero_grad()
        loss, metrics = self.loss(batch)
        loss.backward()
        return metrics

    def loss(self, batch: OnPolicyBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of one rollout, and what it is made of."""
        config = self.config
        weights = batch.weights
        log_probs, entropy, values = self.policy.evaluate(
            batch.obs, batch.actions, state=batch.state, starts=batch.starts, masks=batch.masks
        )

        # Actions that did better than expected become more likely.
        advantages = batch.advantages
        if config.normalize_advantages:
            advantages = losses.normalize(advantages, weights)
        policy_loss = losses.policy_gradient(log_probs, advantages, weights)

        # The values follow the returns of the rollout.
        value_loss = losses.value_loss(values, batch.returns, weights)

        # Entropy keeps the policy from deciding too early.
        entropy_mean = losses.mean(entropy, weights)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy_mean
        with torch.no_grad():
            return loss, torch.stack((policy_loss, value_loss, entropy_mean, loss))
