"""Advantage Actor-Critic, synchronous (Mnih et al., 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sharpwave.agents import OnlineAgent
from sharpwave.config.on_policy import OnPolicyConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import losses, nn
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.native import NativeA2CLearner
from sharpwave.learners.policy_learner import PolicyLearner
from sharpwave.loops.on_policy import OnPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class A2CConfig(OnPolicyConfig):
    """Options of A2C."""

    n_steps: int = 5
    """Steps of each environment in a rollout."""
    learning_rate: ScheduleLike = 7e-4
    """Learning rate; a schedule follows the progress of the run."""
    gae_lambda: float = 1.0
    """λ of generalized advantage estimation: 0 trusts the values, 1 the rewards."""
    normalize_advantages: bool = False
    """Normalize the advantages of each rollout to mean 0 and standard deviation 1."""
    rms_alpha: float = 0.99
    """Smoothing constant α of RMSprop: decay of its mean square."""
    rms_eps: float = 1e-5
    """ε of RMSprop: added to the root of its mean square, for numerical stability."""
    compile: bool = False
    """Compile the loss with torch.compile."""

    aliases: ClassVar[dict[str, str]] = {
        **OnPolicyConfig.aliases,
        "normalize_advantage": "normalize_advantages",
        "rms_prop_eps": "rms_eps",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_range("rms_alpha", 0, 1)
        self.require_positive("rms_eps")


class A2CLearner(PolicyLearner):
    r"""The loss of A2C.

        L = −mean(A log π(a|s)) + c_v ½ mean((V − R)²) − c_H mean(H(π))

    minimized by RMSprop, with the norm of the gradient clipped.
    """

    config: A2CConfig
    losses = ("loss",)

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """RMSprop with the constants of the reference."""
        return nn.RMSprop(flat, lr=0.0, alpha=self.config.rms_alpha, eps=self.config.rms_eps)

    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout: one gradient step."""
        loss, metrics = self.loss(batch)
        self.flat.backward(loss)
        norm = self.optimizers["policy"].clip_and_step(self.config.max_grad_norm)
        self.count(batch)
        self.updates += 1
        return {
            **{name: value.detach() for name, value in metrics.items()},
            "grad_norm": norm,
            "explained_variance": losses.explained_variance(
                batch.values, batch.returns, batch.weights
            ),
        }

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of one rollout, and what is logged of it: tensors of one number by name."""
        config = self.config
        weights = batch.weights
        log_probs, entropy, values = self.policy.evaluate(
            batch.obs, batch.actions, state=batch.state, starts=batch.starts, masks=batch.masks
        )

        # Actions that did better than expected become more likely.
        advantages = batch.advantages
        if config.normalize_advantages:
            advantages = losses.normalize(advantages, weights, total=self.total)
        policy_loss = losses.policy_gradient(log_probs, advantages, weights)

        # The values follow the returns of the rollout.
        value_loss = losses.value_loss(values, batch.returns, weights)

        # The entropy bonus keeps the policy from becoming deterministic too early.
        entropy_mean = losses.mean(entropy, weights)
        loss = policy_loss + config.vf_coef * value_loss - config.ent_coef * entropy_mean
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy_mean,
            "loss": loss,
        }


class A2C(OnlineAgent):
    """A2C: advantage actor-critic, one gradient step per rollout, on-policy.

    `A2CLearner` has the loss.

    Example:
        >>> a2c = A2C("CartPole-v1", n_envs=4)
        >>> metrics = a2c.train(200)
        >>> sorted(metrics)[:3]
        ['entropy', 'episodes', 'explained_variance']
    """

    name = "a2c"
    Config = A2CConfig
    Learner = A2CLearner
    Native = NativeA2CLearner
    Loop = OnPolicyLoop
    takes = ("policy",)
    learns_together = True
