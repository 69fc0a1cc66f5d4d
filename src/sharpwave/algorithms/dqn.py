"""Deep Q-Networks (Mnih et al., 2015, doi:10.1038/nature14236) and their extensions."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave.agents import OnlineAgent
from sharpwave.config.off_policy import OffPolicyConfig
from sharpwave.config.schedules import ScheduleLike
from sharpwave.core.lazy import losses, nn, torch
from sharpwave.learners import Acted, Metrics
from sharpwave.learners.native import NativeDQNLearner
from sharpwave.learners.q_schedule import QSchedule
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.torch_learner import TorchLearner
from sharpwave.loops.off_policy import OffPolicyLoop

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Options of DQN."""

    has_critic: ClassVar[bool] = False

    batch_size: int = 64
    """Batch size: transitions of a gradient step."""
    learning_rate: ScheduleLike = 1e-4
    """Learning rate; a schedule follows the progress of the run."""
    adam_eps: float = 1e-8
    """ε of Adam: added to the root of its mean square, for numerical stability."""
    max_grad_norm: float | None = 10.0
    """Maximum norm of the gradient; larger gradients are scaled down. None does not clip."""
    double_dqn: bool = True
    """Let the online network choose the action that the target network values."""
    dueling: bool = False
    """Use a dueling network: separate streams for the state value and the advantages."""
    noisy: bool = False
    """Explore by a noisy network, with learned noise on weights; ε is 0 after `learning_starts`."""
    loss: Literal["huber", "mse"] = "huber"
    """Loss function of the TD error."""
    target_update_freq: int = 1000
    """Environment steps between two copies of the network to the target network; a learner counts
    `train_freq` steps of every environment to `gradient_steps` of its own."""
    tau: float = 1.0
    """Polyak coefficient of the target network: 1 copies the network every `target_update_freq`
    steps, less moves the target network by this share at every gradient step instead."""
    exploration_fraction: float = 0.1
    """Fraction of the run over which ε, the probability of random actions, falls linearly."""
    exploration_initial_eps: float = 1.0
    """Initial ε of ε-greedy exploration."""
    exploration_final_eps: float = 0.05
    """Final ε of ε-greedy exploration."""

    aliases: ClassVar[dict[str, str]] = {
        **OffPolicyConfig.aliases,
        "target_update_interval": "target_update_freq",
        "double_q": "double_dqn",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("target_update_freq", "tau", "adam_eps")
        self.require_range("tau", 0, 1)
        for name in ("fraction", "initial_eps", "final_eps"):
            self.require_range(f"exploration_{name}", 0, 1)


class DQNLearner(QSchedule, TorchLearner):
    r"""The network and loss of DQN.

    With a target network Q̄ that follows slowly, the reward r of one step or n, and the discount γ
    (0 where the episode terminated),

        y = r + γ Q̄(s', argmax_a Q(s', a))        L = mean(w · huber(Q(s, a) − y))

    where Q̄ itself chooses the action unless `double_dqn` (van Hasselt et al., 2016), and the
    weights w are 1 unless `prioritized` (Schaul et al., 2016). `dueling` (Wang et al., 2016),
    `noisy` (Fortunato et al., 2018) and `n_step` make the rest of Rainbow (Hessel et al., 2018)
    but for distributions, which `C51` and `QRDQN` learn. In training, a share ε of the actions is
    random. Forbidden actions are never taken and never valued.
    """

    config: DQNConfig
    losses = ("loss",)

    def build(self) -> None:
        """Make the network, its target network, and Adam over its parameters."""
        self.policy = self.add("q_network", self.make_network(), self.make_optimizer)
        self.target = self.add_copy("target", self.policy)
        self.branches = self.policy.branches

    def make_optimizer(self, flat: nn.FlatParameters) -> nn.FlatOptimizer:
        """Adam with the ε of the configuration."""
        return nn.Adam(flat, lr=0.0, eps=self.config.adam_eps)

    @property
    def n_atoms(self) -> int:
        """Number of outputs of the network for each option of an action."""
        return 1

    def make_network(self) -> Any:
        """The Q-network, which estimates the values of actions."""
        config = self.config
        if "q_network" in self.given:
            given = self.given["q_network"]
            return nn.CustomQNetwork(given, self.action_space, n_atoms=self.n_atoms)
        return nn.QNetwork(
            self.observation_space,
            self.action_space,
            **self.network_options("actor"),
            dueling=config.dueling,
            noisy=config.noisy,
            n_atoms=self.n_atoms,
        )

    # Acting

    def act(
        self, obs: Any, *, explore: bool, state: Any = None, masks: Any = None, **_: Any
    ) -> Acted:
        """Greedy actions, or with probability ε random ones."""
        policy, branches, generator = self.policy, self.branches, self.explore_generator
        if not explore:
            policy.remove_noise()
            output, state = self.output_of(obs, state)
            return Acted(self.greedy(output, masks), state=state)
        policy.reset_noise(generator)
        output, state = self.output_of(obs, state)
        best, k = self.greedy(output, masks), self.n_explorers
        draws = torch.rand(len(best), k + branches.n, generator=generator, device=best.device)
        random = branches.greedy(draws[:, k:], masks)
        explores = draws[:, :k].reshape(-1, *(k for _ in branches.action_shape)) < self.epsilon
        return Acted(torch.where(explores, random, best), state=state)

    def output_of(self, obs: Any, state: Any) -> tuple[Tensor, Any]:  # noqa: ARG002
        """The output of the network for observations to act on, and its memory."""
        return self.policy(obs), None

    @property
    def n_explorers(self) -> int:
        """Number of choices of an action that are random or not apart from each other."""
        return 1

    def greedy(self, output: Tensor, masks: Tensor | None) -> Tensor:
        """Greedy allowed actions, from the output of a network."""
        best: Tensor = self.branches.greedy(self.values(output), masks)
        return best

    def values(self, output: Tensor) -> Tensor:
        """Q-values [B, n] of all options, from the output of the network."""
        return output

    # Learning

    def update(self, batch: ReplayBatch) -> Metrics:
        """One gradient step of the network, and an update of the target network where it is due."""
        config, flat = self.config, self.flats["q_network"]
        if self.copies_target():
            self.flats["target"].data.copy_(flat.data)
            self.target_copied_at = self.steps_lived()
        self.policy.reset_noise(self.generator)
        self.target.reset_noise(self.generator)
        loss, values, errors = self.loss(batch)
        flat.backward(loss)
        norm = self.optimizers["q_network"].clip_and_step(config.max_grad_norm or math.inf)
        if config.tau < 1:
            self.follow_slowly("target", "q_network", config.tau)
        self.updates += 1
        errors = errors.detach()
        return {
            "loss": loss.detach(),
            "q_value": values.detach().mean(),
            "td_error": errors.abs().mean(),
            "grad_norm": norm,
            "td_errors": errors,
        }

    def update_kind(self) -> Hashable:
        """A step that copies remembers when, which a replay cannot."""
        return None if self.copies_target() else "step"

    def loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of a batch, the Q-values [B] of its actions and their TD errors [B]."""
        with torch.no_grad():
            next_values = self.value_of(self.target, batch.next_obs, *self.next_best(batch))
            targets = torch.addcmul(batch.rewards, batch.discounts, next_values)
        values = self.value_of(self.policy, batch.obs, self.policy(batch.obs), batch.actions)
        errors = values - targets
        rows = losses.huber(errors) if self.config.loss == "huber" else errors.square()
        return losses.weighted_mean(rows, batch.weights), values, errors

    def value_of(self, network: Any, obs: Any, output: Tensor, actions: Tensor) -> Tensor:  # noqa: ARG002
        """Q-values [B] of actions, from the output of a network at observations."""
        values: Tensor = self.branches.mean_of(output, actions)
        return values

    def next_best(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Output of the target network at the next states, and the best actions there."""
        output = self.target(batch.next_obs)
        chooser = self.policy(batch.next_obs) if self.config.double_dqn else output
        return output, self.greedy(chooser, batch.next_masks)


class DQN(OnlineAgent):
    """DQN: deep Q-learning with replay and a target network.

    `DQNLearner` has the loss.

    Args:
        q_network: A module `q_network(obs) -> values` of all actions, in place of the built one.

    Example:
        >>> dqn = DQN("CartPole-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = dqn.train(200)
        >>> dqn.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "dqn"
    Config = DQNConfig
    Learner = DQNLearner
    Native = NativeDQNLearner
    Loop = OffPolicyLoop
    takes = ("q_network",)
    learns_together = True
