"""IMPALA: importance-weighted actor-learner architecture (Espeholt et al., 2018, 1802.01561)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sharpwave.agents.actor_learner import ActorLearnerAgent
from sharpwave.algorithms.a2c import A2CLearner
from sharpwave.algorithms.followers import follower_of
from sharpwave.config.schedules import ScheduleLike
from sharpwave.config.unrolls import UnrollConfig
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.native import NativeIMPALALearner
from sharpwave.learners.unrolls import UnrollBatch, value_unrolls
from sharpwave.loops.actor_learner import ActorLearnerLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(UnrollConfig):
    """Options of IMPALA."""

    learning_rate: ScheduleLike = 1e-3
    """Learning rate; a schedule follows the progress of the run."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction of the loss over steps: their mean, or their sum, as the reference code has it."""
    normalize_advantages: bool = False
    """Normalize the advantages of each update to mean 0 and standard deviation 1."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Name of the optimizer."""
    rms_alpha: float = 0.99
    """Smoothing constant α of RMSprop: decay of its mean square."""
    rms_eps: float = 1e-5
    """ε of either optimizer: added to the root of its mean square, for numerical stability."""
    compile: bool = False
    """Compile the loss with torch.compile."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("rms_eps")
        self.require_range("rms_alpha", 0, 1)

    @property
    def needs_torch(self) -> str | None:
        """Why native code cannot learn so; None when it can."""
        if self.reduction != "mean":
            return f"reduction is {self.reduction!r}"
        return None if self.optimizer == "rmsprop" else f"optimizer is {self.optimizer!r}"


class IMPALALearner(A2CLearner):
    r"""The loss of A2C on the targets of V-trace.

    With ρ = π(a|s) / μ(a|s) of the policy π that learns and the older one μ that acted,

        δ_t  = min(ρ̄, ρ_t) (r_t + γ V(s_{t+1}) − V(s_t))
        vs_t = V(s_t) + δ_t + γ λ min(c̄, ρ_t) (vs_{t+1} − V(s_{t+1}))
        A_t  = min(ρ̄_pg, ρ_t) (r_t + γ vs_{t+1} − V(s_t))
        L    = −mean(A log π(a|s)) + c_v ½ mean((V − vs)²) − c_H mean(H(π))

    where V is the learner's everywhere. Nothing follows a termination. A cut episode, and an unroll
    that ends, go on by the value of what they led to. Gradients reach neither vs nor A.
    """

    config: IMPALAConfig  # type: ignore[assignment]

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """RMSprop with the constants of the reference, or Adam."""
        if self.config.optimizer == "adam":
            return nn.Adam(flat, lr=0.0, eps=self.config.rms_eps)
        return super().make_optimizer(flat)

    def update(self, batch: UnrollBatch) -> Metrics:  # type: ignore[override]
        """Learn from some unrolls: one gradient step."""
        return super().update(self.corrected(batch))

    def corrected(self, batch: UnrollBatch) -> OnPolicyBatch:
        """The steps of some unrolls with vs as returns, and A as advantages."""
        with torch.no_grad():
            return batch.corrected(value_unrolls(self.policy, batch), self.config)

    def loss(self, batch: OnPolicyBatch) -> tuple[Tensor, Metrics]:
        """The loss of an update, and what is logged of it, always means."""
        loss, metrics = super().loss(batch)
        # Gradients of several processes are averaged, so that each counts for all of them.
        rows = batch.log_probs.numel() * self.ranks.size
        scale = rows if self.config.reduction == "sum" else 1
        return scale * loss, metrics


class IMPALA(ActorLearnerAgent):
    """IMPALA: actors that go on while the learner learns, corrected by V-trace.

    `IMPALALearner` has the loss. Each of `n_actors` actors has `n_envs` environments, and a copy
    of the weights that is some updates old. `actors` says where they act: in threads, in processes,
    on other machines, or where Ray starts them.

    Example:
        >>> impala = IMPALA("CartPole-v1", n_envs=4, n_steps=16)
        >>> metrics = impala.train(512)
        >>> metrics["lag_max"] <= 4, metrics["actors_alive"]
        (True, 2.0)
        >>> impala.close()
    """

    name = "impala"
    Config = IMPALAConfig
    Learner = IMPALALearner
    Native = NativeIMPALALearner
    Loop = ActorLearnerLoop
    takes = ("policy",)
    secrets = ("token",)
    followers = staticmethod(follower_of)
    collects_natively = True
    learns_together = True
