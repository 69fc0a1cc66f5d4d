"""Twin Delayed Deep Deterministic policy gradient (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents import OnlineAgent
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import nn, torch
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.native import NativeTD3Learner
from sharpwave.learners.noise import OrnsteinUhlenbeck
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class TD3Config(OffPolicyConfig):
    """Options of TD3. All noise is in actions scaled to [-1, 1]."""

    n_critics: int = 2
    """Number of critics; targets are their minimum."""
    critic_learning_rate: ScheduleLike | None = None
    """Learning rate of the critics; `learning_rate` when None."""
    tau: float = 0.005
    """Polyak coefficient: share of the new weights in each update of the target networks."""
    policy_delay: int = 2
    """Gradient steps of the critics for each one of the actor and all target networks."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target actor's actions (target smoothing)."""
    noise_clip: float = 0.5
    """Bound that the noise on the target actor's actions is clipped to."""
    exploration_noise: float = 0.1
    """Standard deviation of the exploration noise on actions."""
    noise_type: Literal["normal", "ou"] = "normal"
    """Exploration noise: independent Gaussian, or an Ornstein-Uhlenbeck process ("ou")."""

    aliases: ClassVar[dict[str, str]] = {
        **OffPolicyConfig.aliases,
        "target_policy_noise": "target_noise",
        "target_noise_clip": "noise_clip",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_critics", "policy_delay")
        self.require_range("critic_learning_rate", 0)
        self.require_range("tau", 0, 1)
        for name in ("target_noise", "noise_clip", "exploration_noise"):
            self.require_range(name, 0)


class TD3Learner(TorchLearner):
    r"""The networks and losses of TD3.

    With target networks μ̄ and Q̄ of actor and critics, and ε ~ clip(N(0, σ²), ±c),

        y = r + γ min_i Q̄_i(s', clip(μ̄(s') + ε, ±1))
        L_Q = Σ_i mean((Q_i(s, a) − y)²)
        L_μ = −mean(Q_1(s, μ(s)))

    Actor and target networks move once in `policy_delay` steps of the critics.
    """

    config: Any  # a TD3Config, or one with the same options
    is_random = False
    losses = ("critic_loss", "actor_loss")

    def build(self) -> None:
        """Make actor, critics, and a target network of each."""
        self.policy = self.add("actor", self.make_actor(), self.make_optimizer)
        self.critics = self.add("critics", self.make_critics(), self.make_optimizer)
        self.target_actor = self.add_copy("target_actor", self.policy)
        self.target_critics = self.add_copy("target_critics", self.critics)
        self.last_actor_loss = torch.zeros((), device=self.device)

    def make_actor(self) -> Any:
        """The policy."""
        if "actor" in self.given:
            return nn.CustomDeterministicActor(self.given["actor"], self.action_dim)
        options = self.network_options("actor")
        return nn.DeterministicActor(self.observation_space, self.action_dim, **options)

    # Acting

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, starts: Any = None, **_: Any
    ) -> Acted:
        """Actions in [-1, 1], with noise to explore."""
        actions = self.policy.mode(obs)
        if not explore:
            return Acted(actions, state=state)
        noise = torch.empty_like(actions)
        if state is None:
            noise.normal_(std=self.config.exploration_noise, generator=self.explore_generator)
        else:
            noise = state.move(starts, noise.normal_(generator=self.explore_generator))
        return Acted((actions + noise).clamp_(-1.0, 1.0), state=state)

    def initial_state(self, n_envs: int) -> OrnsteinUhlenbeck | None:
        """An Ornstein-Uhlenbeck process for each environment, where noise is of that type."""
        if self.config.noise_type != "ou":
            return None
        zeros = torch.zeros(n_envs, self.action_dim, device=self.device)
        return OrnsteinUhlenbeck(zeros, self.config.exploration_noise)

    # Learning

    def update(self, batch: ReplayBatch) -> Metrics:
        """One step of the critics, and of the rest where it is due."""
        # The critics regress on the target value of the target actor at the next state.
        targets = self.targets(batch)
        critic_loss, td_errors = self.critic_loss(batch, targets)
        self.descend("critics", critic_loss)

        # The actor maximizes the first critic, and the target networks follow both.
        if self.moves_actor:
            actor_loss = self.actor_loss(batch)
            self.descend("actor", actor_loss)
            self.last_actor_loss.copy_(actor_loss.detach())
            self.follow_slowly("target_actor", "actor", self.config.tau)
            self.follow_slowly("target_critics", "critics", self.config.tau)
        self.updates += 1
        return {
            "critic_loss": critic_loss.detach(),
            "actor_loss": self.last_actor_loss.clone(),
            "q_value": targets.mean(),
            "td_errors": td_errors,
        }

    @property
    def moves_actor(self) -> bool:
        """True if the next update moves actor and target networks too."""
        moves: bool = (self.updates + 1) % self.config.policy_delay == 0
        return moves

    def update_kind(self) -> Hashable:
        """Kind of the next update: whether it moves the actor too."""
        return self.moves_actor

    def targets(self, batch: ReplayBatch) -> Tensor:
        """Targets [B] of the critics."""
        with torch.no_grad():
            next_values = self.target_critics(batch.next_obs, self.next_actions(batch)).amin(0)
            targets: Tensor = torch.addcmul(batch.rewards, batch.discounts, next_values)
            return targets

    def next_actions(self, batch: ReplayBatch) -> Tensor:
        """Next actions [B, d] of the target actor, with clipped noise."""
        config = self.config
        actions: Tensor = self.target_actor(batch.next_obs)
        if config.target_noise == 0:
            return actions
        noise = torch.empty_like(actions)
        noise.normal_(std=config.target_noise, generator=self.generator)
        noise.clamp_(-config.noise_clip, config.noise_clip)
        return (actions + noise).clamp_(-1.0, 1.0)

    def critic_loss(self, batch: ReplayBatch, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the critics, and the mean absolute TD error of each row [B]."""
        errors = self.critics(batch.obs, batch.actions) - targets
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        return squares.mean(-1).sum(), errors.detach().abs().mean(0)

    def actor_loss(self, batch: ReplayBatch) -> Tensor:
        """The loss of the actor."""
        values: Tensor = self.critics(batch.obs, self.policy(batch.obs), n=1)[0]
        return -values.mean()

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        """The last loss of the actor."""
        return {"actor_loss": self.last_actor_loss}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.last_actor_loss.fill_(float(state["actor_loss"]))


class TD3(OnlineAgent):
    """TD3: deterministic policy gradient with twin critics and delayed updates.

    `TD3Learner` has the losses.

    Args:
        actor: A module `actor(obs) -> actions` [B, d] in [-1, 1] in place of the built one.
        critic: A module `critic(obs, actions) -> values` [B, 1], copied for its twin.

    Example:
        >>> td3 = TD3("Pendulum-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = td3.train(200)
        >>> td3.predict([1.0, 0.0, 0.0]).shape
        (1,)
    """

    name = "td3"
    Config = TD3Config
    Learner = TD3Learner
    Native = NativeTD3Learner
    Loop = OffPolicyLoop
    takes = ("actor", "critic")
    learns_together = True
