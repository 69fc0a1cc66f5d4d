"""Deep Q-Networks (Mnih et al., 2015, doi:10.1038/nature14236) and what was added to them."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sharpwave.lazy import losses, nn, torch
from sharpwave.learn import Draws, FlatArrays, QLayout
from sharpwave.train.algorithm import Metrics
from sharpwave.train.native_replay import NativeQ
from sharpwave.train.off_policy import OffPolicy, OffPolicyConfig
from sharpwave.train.replay import ReplayBatch
from sharpwave.train.schedules import ScheduleLike
from sharpwave.train.threads import native_threads
from sharpwave.types import Array, Nested

METRICS = ("loss", "q_value", "td_error", "grad_norm")
"""What a gradient step measures, in order."""


@dataclass(frozen=True, kw_only=True)
class DQNConfig(OffPolicyConfig):
    """Options of DQN."""

    batch_size: int = 64
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 1e-4
    """Step size of the optimiser; a schedule follows the progress of the run."""
    adam_eps: float = 1e-8
    """Added to the root of Adam's mean square."""
    max_grad_norm: float | None = 10.0
    """Longest gradient; longer ones are scaled down to it."""
    double_dqn: bool = True
    """Let the online network choose the action that the target network values."""
    dueling: bool = False
    """Estimate the value of a state and what actions have over it apart."""
    noisy: bool = False
    """Explore by learned noise on the weights; after `learning_starts`, ε is 0 then."""
    loss: Literal["huber", "mse"] = "huber"
    """What is minimised of the error."""
    target_update_freq: int = 1000
    """Environment steps between two copies of the network to the target network."""
    tau: float = 1.0
    """1 copies the network as often as `target_update_freq` says; less moves the target network by
    this share at every gradient step instead."""
    exploration_fraction: float = 0.1
    """Part of the run over which ε, the share of random actions, falls linearly."""
    exploration_initial_eps: float = 1.0
    """ε at the start of the run."""
    exploration_final_eps: float = 0.05
    """ε after that part."""

    aliases: ClassVar[dict[str, str]] = {
        **OffPolicyConfig.aliases,
        "target_update_interval": "target_update_freq",
        "n_steps": "n_step",
        "double_q": "double_dqn",
    }

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("target_update_freq", "tau", "adam_eps")
        self.require_range("tau", 0, 1)
        for name in ("fraction", "initial_eps", "final_eps"):
            self.require_range(f"exploration_{name}", 0, 1)


class DQN(OffPolicy):
    r"""DQN: learns what actions are worth, and takes the best.

    With a target network Q̄ that follows slowly, the reward r of one step or n, and the discount γ
    (0 where the episode terminated),

        y = r + γ Q̄(s', argmax_a Q(s', a))        L = mean(w · huber(Q(s, a) − y))

    where Q̄ itself chooses the action unless `double_dqn` (van Hasselt et al., 2016), and the
    weights w are 1 unless `prioritized` (Schaul et al., 2016). `dueling` (Wang et al., 2016),
    `noisy` (Fortunato et al., 2018) and `n_step` make the rest of Rainbow (Hessel et al., 2018)
    but for distributions, which `C51` and `QRDQN` learn. In training, a share ε of the actions is
    random. Forbidden actions are never taken and never valued.

    Example:
        >>> dqn = DQN("CartPole-v1", learning_starts=100, hidden=(32, 32))
        >>> metrics = dqn.train(200)
        >>> dqn.predict([0.0, 0.1, 0.0, -0.1]) in (0, 1)
        True
    """

    name = "dqn"
    Config: ClassVar[type[DQNConfig]] = DQNConfig
    config: DQNConfig
    native: NativeQ | None
    metrics = METRICS
    compiled = ("loss",)
    takes = ("q_network",)
    TRUTH = (*OffPolicy.TRUTH, "gradient", "loss", "values", "greedy", "next_best", "make_network")

    def build(self) -> None:
        """Make networks and collector."""
        self.epsilon = self.config.exploration_initial_eps
        self.target_copied_at = 0
        super().build()

    def build_networks(self) -> None:
        """Make the network, its slow copy, and Adam over its parameters."""
        self.policy = self.make_network().to(self.device)
        self.branches = self.policy.branches
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self.flat = nn.FlatParameters(self.policy, self.device)
        self.flat_target = nn.FlatParameters(self.target, self.device)
        self.optimizer = nn.Adam(self.flat, lr=0.0, eps=self.config.adam_eps)
        self.register("q_network", self.policy, self.optimizer)
        self.register("target", self.target)
        self.by_hand = nn.QByHand.of(self.policy, self.target)
        self.numpy_twins: dict[Any, nn.NumpyQ | None] = {}

    @property
    def n_atoms(self) -> int:
        """How many numbers the network has to say about an option."""
        return 1

    def make_network(self) -> Any:
        """What values actions."""
        config = self.config
        given = self.given["q_network"]
        if given is not None:
            return nn.CustomQNetwork(given, self.action_space, n_atoms=self.n_atoms)
        return nn.QNetwork(
            self.observation_space,
            self.action_space,
            hidden=config.hidden,
            activation=config.activation,
            dueling=config.dueling,
            noisy=config.noisy,
            n_atoms=self.n_atoms,
            generator=self.weights_generator,
        )

    def make_module(self, name: str) -> Any:  # noqa: ARG002 - both are alike
        """A new torch module like the one of `networks` with this name."""
        return self.make_network()

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        return "noisy is on" if self.config.noisy else super().why_not_native()

    def make_native(self) -> NativeQ:
        """Make the network, its slow copy, and Adam over its parameters, for native code."""
        config, spaces = self.config, (self.observation_space, self.action_space)
        layout = QLayout.of(
            *spaces, hidden=config.hidden, activation=config.activation, dueling=config.dueling
        )
        flat = layout.first_parameters(self.weights_generator)
        threads = native_threads(config.threads, layout.n_parameters * config.batch_size)
        return NativeQ(*spaces, layout, flat, adam_eps=config.adam_eps, threads=threads)

    # Acting

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set learning rate, weights of priorities and ε, which never rises again."""
        super().follow_schedules(progress_remaining)
        config = self.config
        start, end = config.exploration_initial_eps, config.exploration_final_eps
        done = min(1.0, (1.0 - progress_remaining) / max(config.exploration_fraction, 1e-9))
        self.epsilon = 0.0 if config.noisy else min(self.epsilon, start + done * (end - start))

    def act(
        self,
        policy: Any,
        obs: Any,
        masks: torch.Tensor | None,
        *,
        explore: bool,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """The best actions, or with chance ε random ones."""
        if not explore:
            policy.remove_noise()
            return self.greedy(policy(obs), masks)
        policy.reset_noise(generator)
        best = self.greedy(policy(obs), masks)
        draws = torch.rand(len(best), 1 + self.branches.n, generator=generator, device=best.device)
        random = self.branches.greedy(draws[:, 1:], masks)
        explores = draws[:, 0].reshape(-1, *(1 for _ in self.branches.action_shape)) < self.epsilon
        return torch.where(explores, random, best)

    def native_act(
        self, policy: FlatArrays, inputs: Array, masks: Any, draws: Draws | None
    ) -> Array:
        """The same, in native code."""
        assert self.native is not None
        actor = self.native.actor(policy)
        if draws is None:
            return self.native.as_actions(actor.act(inputs, masks))
        draw = draws.next_call()
        choices = actor.explore(inputs, masks, epsilon=self.epsilon, draw=draw)
        return self.native.as_actions(choices)

    def _act(self, obs: Nested, masks: Any, policy: Any, explore: bool, generator: Any) -> Array:
        """The same, in NumPy where that is quicker than torch."""
        if self.native is not None:
            return super()._act(obs, masks, policy, explore, generator)
        if policy not in self.numpy_twins:
            self.numpy_twins[policy] = nn.NumpyQ.of(policy)
        twin = self.numpy_twins[policy]
        if twin is None or len(obs) > twin.max_rows:
            return super()._act(obs, masks, policy, explore, generator)
        if not explore:
            return twin.greedy(obs, masks)
        draws = torch.rand(len(obs), 1 + self.branches.n, generator=generator).numpy()
        explores = draws[:, 0] < self.epsilon
        actions = twin.best(draws[:, 1:], masks)
        if not explores.all():
            actions[~explores] = twin.greedy(obs, masks)[~explores]
        return actions

    def _explore(self, obs: Nested, masks: Any) -> Array:
        if self.native is not None:
            return super()._explore(obs, masks)
        return self._act(obs, masks, self.acting_policy, True, self.explore_generator)

    def greedy(self, output: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
        """The best actions that are allowed, from what a network says."""
        best: torch.Tensor = self.branches.greedy(self.values(output), masks)
        return best

    def values(self, output: torch.Tensor) -> torch.Tensor:
        """What the network's output means: the values of all options, [B, n]."""
        return output

    # Learning

    def iterate(self) -> Metrics | None:
        """Collect and learn until the next report of metrics."""
        metrics = super().iterate()
        return metrics and {**metrics, "epsilon": self.epsilon}

    def gradient_step(self, batch: ReplayBatch) -> Any:
        """One step of the network, and perhaps of its slow copy; its `METRICS`."""
        if self.native is not None:
            return self.native_step(batch)
        config = self.config
        if self.copies_target():
            self.flat_target.data.copy_(self.flat.data)
            self.target_copied_at = self.timesteps
        self.policy.reset_noise(self.generator)
        self.target.reset_noise(self.generator)
        metrics = self.gradient(batch)
        norm = self.flat.clip_grad_norm(config.max_grad_norm or math.inf)
        self.optimizer.step()
        if config.tau < 1:
            self.flat_target.data.lerp_(self.flat.data, config.tau)
        return torch.cat((metrics, norm[None]))

    def native_step(self, batch: ReplayBatch) -> Array:
        """The same, in native code."""
        assert self.native is not None
        config = self.config
        if self.copies_target():
            self.native.target.data[:] = self.native.policy.data
            self.target_copied_at = self.timesteps
        metrics, batch.td_errors = self.native.learner.step(
            batch,
            double=config.double_dqn,
            huber=config.loss == "huber",
            max_grad_norm=config.max_grad_norm,
            tau=config.tau,
        )
        return metrics

    def copies_target(self) -> bool:
        """Whether the slow copy takes all weights before the next gradient step."""
        age = self.timesteps - self.target_copied_at
        return self.config.tau == 1 and age >= self.config.target_update_freq

    def graph_key(self) -> Hashable:
        """A step that copies remembers when, which a graph cannot."""
        return None if self.copies_target() else "step"

    def gradient(self, batch: ReplayBatch) -> torch.Tensor:
        """Fill the flat gradient with that of `loss`: by hand for known networks."""
        if self.by_hand is not None:
            metrics, batch.td_errors = self.by_hand.gradient(
                batch.obs,
                batch.actions,
                batch.rewards,
                batch.next_obs,
                batch.discounts,
                weights=batch.weights,
                next_masks=batch.next_masks,
                double=self.config.double_dqn,
                huber=self.config.loss == "huber",
            )
            return metrics
        self.flat.zero_grad()
        loss, values, errors = self.loss(batch)
        loss.backward()
        with torch.no_grad():
            batch.td_errors = errors.detach()
            return torch.stack((loss, values.mean(), errors.abs().mean()))

    def loss(self, batch: ReplayBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The loss of a batch, the values [B] of its actions and their errors [B]."""
        with torch.no_grad():
            next_values = self.branches.mean_of(*self.next_best(batch))
            targets = torch.addcmul(batch.rewards, batch.discounts, next_values)
        values = self.branches.mean_of(self.policy(batch.obs), batch.actions)
        errors = values - targets
        rows = losses.huber(errors) if self.config.loss == "huber" else errors.square()
        return losses.weighted_mean(rows, batch.weights), values, errors

    def next_best(self, batch: ReplayBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """What the target network says of the next states, and the best actions there."""
        output = self.target(batch.next_obs)
        chooser = self.policy(batch.next_obs) if self.config.double_dqn else output
        return output, self.greedy(chooser, batch.next_masks)

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        """Where exploration and the slow copy stand."""
        return {"epsilon": self.epsilon, "target_copied_at": self.target_copied_at}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.epsilon = float(state["epsilon"])
        self.target_copied_at = int(state["target_copied_at"])
