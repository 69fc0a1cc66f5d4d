"""CrossQ (Bhatt et al., 2024, arXiv:1902.05605): SAC without target networks."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from sharpwave.algorithms.sac import SAC, SACConfig
from sharpwave.lazy import nn, torch
from sharpwave.nest import map_leaves
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.schedules import ScheduleLike


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SACConfig):
    """Options of CrossQ."""

    learning_rate: ScheduleLike = 1e-3
    """Step size of the optimisers; a schedule follows the progress of the run."""
    critic_hidden: tuple[int, ...] = (1024, 1024)
    """Widths of the critics' hidden layers; `hidden` is the actor's."""
    policy_delay: int = 3
    """Gradient steps of the critics for one of the actor and the weight of entropy."""
    adam_beta: float = 0.5
    """Decay of Adam's first moment."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("critic_hidden", "policy_delay")
        self.require_range("adam_beta", 0, 1)
        for name, default in (("tau", 0.005), ("target_update_interval", 1)):
            if getattr(self, name) != default:
                raise ValueError(f"{name} has no meaning here: there are no target networks")


class CrossQ(SAC):
    r"""CrossQ: SAC with batch normalisation in place of target networks.

    One forward pass of (s, a) and (s', a') together gives the critics' values and, not
    differentiated, their targets, so that both are normalised by the statistics of their mixture:

        Q_i = [Q_i(s, a); Q_i(s', a')],   y = r + γ (min_i Q_i(s', a') − α log π(a'|s'))

    Losses are those of `SAC`; the actor is normalised too, and learns once in `policy_delay` steps.

    Example:
        >>> crossq = CrossQ("Pendulum-v1", learning_starts=100, hidden=32, critic_hidden=(64, 64))
        >>> metrics = crossq.train(200)
        >>> crossq.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "crossq"
    Config = CrossQConfig
    config: CrossQConfig
    compiled = ("joint_loss", "actor_loss")
    takes = ()

    def build_networks(self) -> None:
        """Make actor, critics and the weight of entropy."""
        super().build_networks()
        del self.networks["target_critics"], self.target_critics, self.flat_targets
        self.policy.eval()
        self.critics.eval()
        # Loss of the actor, loss of the weight, entropy: of the last step that had them.
        self.last_actor = torch.zeros(3, device=self.device)

    def make_actor(self) -> Any:
        """What acts."""
        return nn.SquashedActor(
            self.observation_space,
            self.action_dim,
            hidden=self.config.hidden,
            activation=self.config.activation,
            gsde=self.config.use_gsde,
            log_std_init=self.config.log_std_init,
            batch_norm=True,
            generator=self.weights_generator,
        )

    def make_by_hand(self) -> None:
        """Its gradients are left to autograd."""

    def make_critics(self) -> Any:
        """What judges actions."""
        return nn.Critics(
            self.observation_space,
            self.action_dim,
            n_critics=self.config.n_critics,
            hidden=self.config.critic_hidden,
            activation=self.config.activation,
            batch_norm=True,
            generator=self.weights_generator,
        )

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam that forgets sooner."""
        return nn.Adam(flat, lr=0.0, eps=1e-8, betas=(self.config.adam_beta, 0.999))

    def gradient_step(self, batch: ReplayBatch) -> torch.Tensor:
        """One step of the critics, and of the rest where it is due; its `METRICS`."""
        config = self.config
        alpha = self.alpha()

        # The critics follow what the policy would earn from the next state on, by their own word.
        with torch.no_grad():
            next_actions, next_log_probs = self.sample(batch.next_obs, None)
        self.critics.train()
        critic_loss, errors, q_value = self.joint_loss(batch, next_actions, alpha * next_log_probs)
        self.critics.eval()
        nn.descend(critic_loss, self.flat_critics, self.critic_optimizer, config.max_grad_norm)
        batch.td_errors = errors

        # The actor follows the critics.
        if (self.gradient_steps + 1) % config.policy_delay == 0:
            self.policy.train()
            actions, log_probs = self.sample(batch.obs, None)
            self.policy.eval()
            entropies = self.entropies(actions, log_probs)
            alpha_loss = self.step_alpha(entropies - self.wanted_entropy(None))
            actor_loss = self.actor_loss(batch, actions, log_probs, alpha)
            nn.descend(actor_loss, self.flat_actor, self.actor_optimizer, config.max_grad_norm)
            with torch.no_grad():
                torch.stack((actor_loss, alpha_loss, entropies.mean()), out=self.last_actor)
        actor_loss, alpha_loss, entropy = self.last_actor
        return torch.stack((critic_loss.detach(), actor_loss, alpha, alpha_loss, entropy, q_value))

    def graph_key(self) -> Hashable:
        """Whether the actor moves too."""
        return (self.gradient_steps + 1) % self.config.policy_delay == 0

    def joint_loss(
        self, batch: ReplayBatch, next_actions: torch.Tensor, penalties: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss of the critics, the mean size of each row's errors [B], and the mean target.

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
        """Where the noise of gSDE stands, and what the last step of the actor measured."""
        return {**super().extra_state(), "last_actor": self.last_actor}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        super().load_extra_state(state)
        self.last_actor.copy_(torch.from_numpy(state["last_actor"]))
