"""APPO: asynchronous PPO, with the targets of V-trace (Luo et al., 2020, arXiv:1912.00167)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sharpwave.agents.actor_learner import ActorLearnerAgent
from sharpwave.algorithms.followers import follower_of
from sharpwave.algorithms.ppo import PPOLearner
from sharpwave.config.on_policy import ClippedConfig
from sharpwave.config.schedules import RateLike
from sharpwave.config.unrolls import UnrollConfig
from sharpwave.core.lazy import torch
from sharpwave.learners import Metrics
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.native import NativeAPPOLearner
from sharpwave.learners.unrolls import UnrollBatch, value_unrolls
from sharpwave.loops.actor_learner import ActorLearnerLoop


@dataclass(frozen=True, kw_only=True)
class APPOConfig(UnrollConfig, ClippedConfig):
    """Options of APPO."""

    n_epochs: int = 4
    """Passes over the unrolls of an update."""
    learning_rate: RateLike = 1e-3  # type: ignore[assignment]
    """Learning rate; a schedule follows the progress of the run, and "adaptive" `desired_kl`."""
    target_update_freq: int = 1
    """Updates between two copies of the weights to the target network. With 1 there is no target
    network: the policy from before each update takes its place."""

    divided: ClassVar[tuple[str, ...]] = (*UnrollConfig.divided, "batch_size")

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("target_update_freq")


class APPOLearner(PPOLearner):
    r"""The loss of PPO on the targets of V-trace.

    With π' and V' of the target network, and ρ = π'(a|s) / μ(a|s) of the older policy μ that acted,

        δ_t  = min(ρ̄, ρ_t) (r_t + γ V'(s_{t+1}) − V'(s_t))
        vs_t = V'(s_t) + δ_t + γ λ min(c̄, ρ_t) (vs_{t+1} − V'(s_{t+1}))
        A_t  = min(ρ̄_pg, ρ_t) (r_t + γ vs_{t+1} − V'(s_t))
        r    = π(a|s) / π'(a|s)
        L    = mean(max(−A r, −A clip(r, 1 − ε, 1 + ε))) + c_v ½ mean((V − vs)²) − c_H mean(H(π)),

    minimized over `n_epochs` passes of shuffled minibatches by Adam, gradients clipped in norm.
    ρ corrects for the lag of the actors, and r stays near 1 however old they are.
    """

    config: APPOConfig  # type: ignore[assignment]

    def build(self) -> None:
        """Make the policy, its optimizer, and the target network where there is one."""
        super().build()
        self.has_target = self.config.target_update_freq > 1
        if self.has_target:
            self.target = self.add_copy("target", self.policy)

    def update(self, batch: UnrollBatch) -> Metrics:  # type: ignore[override]
        """Learn from some unrolls: `n_epochs` passes of gradient steps on shuffled minibatches."""
        metrics = super().update(self.corrected(batch))
        if self.has_target and self.updates % self.config.target_update_freq == 0:
            self.follow_slowly("target", "policy", 1.0)
        return metrics

    def corrected(self, batch: UnrollBatch) -> OnPolicyBatch:
        """The steps of some unrolls with vs as returns, A as advantages, and log π'(a|s)."""
        with torch.no_grad():
            valued = value_unrolls(self.target if self.has_target else self.policy, batch)
        return batch.corrected(valued, self.config, old_log_probs=valued.log_probs)


class APPO(ActorLearnerAgent):
    """APPO: PPO with actors that go on while the learner learns, corrected by V-trace.

    `APPOLearner` has the loss. Actors are those of `IMPALA`.

    Example:
        >>> appo = APPO("CartPole-v1", n_envs=4, n_steps=16)
        >>> metrics = appo.train(512)
        >>> metrics["lag_max"] <= 4, "clip_fraction" in metrics
        (True, True)
        >>> appo.close()
    """

    name = "appo"
    Config = APPOConfig
    Learner = APPOLearner
    Native = NativeAPPOLearner
    Loop = ActorLearnerLoop
    takes = ("policy",)
    secrets = ("token",)
    followers = staticmethod(follower_of)
    collects_natively = True
    learns_together = True
