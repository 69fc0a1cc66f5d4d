"""CrossQ (Bhatt et al., 2024, arXiv:1902.05605): SAC without target networks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sharpwave.agents import OnlineAgent
from sharpwave.algorithms.sac import SACConfig, SACLearner
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import nn, torch
from sharpwave.core.tree import map_leaves
from sharpwave.learners import Metrics
from sharpwave.learners.replay import ReplayBatch
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SACConfig):
    """Options of CrossQ."""

    learning_rate: ScheduleLike = 1e-3
    """Learning rate; a schedule follows the progress of the run."""
    critic_hidden: tuple[int, ...] = (1024, 1024)
    """Widths of the critics' hidden layers, where `hidden` does not name them."""
    policy_delay: int = 3
    """Gradient steps of the critics for each one of the actor and the entropy coefficient."""
    adam_beta: float = 0.5
    """β₁ of Adam: decay of its first moment."""

    def hidden_of(self, network: str) -> tuple[int, ...]:
        """Widths of the hidden layers of the `actor` or the `critic`."""
        if network == "critic" and not isinstance(self.hidden, dict):
            return self.critic_hidden
        return super().hidden_of(network)

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("critic_hidden", "policy_delay")
        self.require_range("adam_beta", 0, 1)
        for name, default in (("tau", 0.005), ("target_update_interval", 1)):
            if getattr(self, name) != default:
                raise ValueError(f"{name} has no meaning here: there are no target networks")


class CrossQLearner(SACLearner):
    r"""The networks and losses of CrossQ.

    One forward pass of (s, a) and (s', a') together gives the critics' values and, not
    differentiated, their targets, so that both are normalized by the statistics of their mixture:

        Q_i = [Q_i(s, a); Q_i(s', a')],   y = r + γ (min_i Q_i(s', a') − α log π(a'|s'))

    Losses are those of `SAC`; the actor is normalized too, and learns once in `policy_delay` steps.
    """

    config: CrossQConfig
    losses = ("joint_loss", "actor_loss")
    compiled_too = ()

    def build(self) -> None:
        """Make actor, critics and the entropy coefficient."""
        super().build()
        del self.networks["target_critics"], self.flats["target_critics"], self.target_critics
        self.policy.eval()
        self.critics.eval()
        # Loss of the actor, loss of the entropy coefficient, entropy: of the last step with them.
        self.last_actor = torch.zeros(3, device=self.device)

    def make_actor(self, **options: Any) -> Any:
        """The policy, with batch normalization."""
        return super().make_actor(batch_norm=True, **options)

    def make_critics(self, **options: Any) -> Any:
        """The critics, with batch normalization."""
        return super().make_critics(batch_norm=True, **options)

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with β₁ of the configuration."""
        return nn.Adam(flat, lr=0.0, eps=1e-8, betas=(self.config.adam_beta, 0.999))

    def update(self, batch: ReplayBatch) -> Metrics:
        """One step of the critics, and of the rest where it is due."""
        alpha = self.alpha()

        # The critics regress on targets of their own values of the policy at the next state.
        with torch.no_grad():
            next_actions, next_log_probs = self.sample(batch.next_obs, None)
        self.critics.train()
        critic_loss, errors, q_value = self.joint_loss(batch, next_actions, alpha * next_log_probs)
        self.critics.eval()
        self.descend("critics", critic_loss)

        # The actor maximizes the Q-values.
        if self.moves_actor:
            self.policy.train()
            actions, log_probs = self.sample(batch.obs, None)
            self.policy.eval()
            entropies = self.entropies(actions, log_probs)
            alpha_loss = self.step_alpha(entropies - self.target_entropy(None))
            actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
            self.descend("actor", actor_loss)
            with torch.no_grad():
                torch.stack((actor_loss, alpha_loss, entropies.mean()), out=self.last_actor)
        actor_loss, alpha_loss, entropy = self.last_actor.clone().unbind()
        self.updates += 1
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": actor_loss,
            "alpha": alpha,
            "alpha_loss": alpha_loss,
            "entropy": entropy,
            "q_value": q_value,
            "td_errors": errors,
        }

    @property
    def moves_actor(self) -> bool:
        """True if the next update steps the actor too."""
        return (self.updates + 1) % self.config.policy_delay == 0

    def update_kind(self) -> Hashable:
        """Kind of the next update: whether the actor is updated too."""
        return self.moves_actor

    def joint_loss(
        self, batch: ReplayBatch, next_actions: Tensor, penalties: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the critics, the mean absolute TD error of each row [B], the mean target.

        Args:
            batch: Steps.
            next_actions: [B, d] a'.
            penalties: [B] α log π(a'|s').
        """
        obs = map_leaves(lambda now, then: torch.cat((now, then)), batch.obs, batch.next_obs)
        both = self.critics(obs, torch.cat((batch.actions, next_actions)))
        values, next_values = both.chunk(2, 1)
        soft_values = next_values.detach().amin(0) - penalties
        targets = torch.addcmul(batch.rewards, batch.discounts, soft_values)
        errors = values - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return 0.5 * squares.mean(-1).sum(), errors.detach().abs().mean(0), targets.mean()

    def extra_state(self) -> dict[str, Any]:
        """Measurements of the last step of the actor."""
        return {"last_actor": self.last_actor}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.last_actor.copy_(torch.from_numpy(state["last_actor"]))


class CrossQ(OnlineAgent):
    """CrossQ: SAC with batch normalization in place of target networks.

    `CrossQLearner` has the losses.

    Example:
        >>> crossq = CrossQ("Pendulum-v1", learning_starts=100, hidden=32, critic_hidden=(64, 64))
        >>> metrics = crossq.train(200)
        >>> crossq.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "crossq"
    Config = CrossQConfig
    Learner = CrossQLearner
    Loop = OffPolicyLoop
