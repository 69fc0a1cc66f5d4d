"""The loop of algorithms that learn from their own latest rollout."""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from sharpwave.collect import (
    Episodes,
    HostSteps,
    NativeRollouts,
    OnPolicyCollector,
    TensorCollector,
    TensorSteps,
)
from sharpwave.envs import ActionMap, TensorVectorEnv, autoreset_mode
from sharpwave.lazy import nn, torch
from sharpwave.learn import PolicyLayout, why_not_native
from sharpwave.train.actor import PolicyActor
from sharpwave.train.algorithm import Metrics
from sharpwave.train.batch import OnPolicyBatch
from sharpwave.train.evaluation import Player
from sharpwave.train.native_policy import NativeActor, NativePolicy
from sharpwave.train.online import OnlineAlgorithm, OnlineConfig
from sharpwave.train.schedules import Linear, ScheduleLike, value_at
from sharpwave.train.threads import native_threads


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(OnlineConfig):
    """Options of every on-policy algorithm."""

    n_steps: int = 128
    """Steps of each environment in a rollout."""
    learning_rate: ScheduleLike = 2.5e-4
    """Step size of the optimiser; a schedule follows the progress of the run."""
    anneal_lr: bool = False
    """Let a constant learning rate fall linearly to 0 over the run."""
    gae_lambda: float = 0.95
    """λ of generalized advantage estimation: 0 trusts the values, 1 the rewards."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Longest gradient; longer ones are scaled down to it."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of actor and critic alike."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the hidden layers."""
    log_std_init: float = 0.0
    """Logarithm of the first standard deviation of continuous actions."""
    squash_actions: bool = False
    """Keep continuous actions in bounds by tanh, scale and bias; otherwise by clipping."""
    use_gsde: bool = False
    """Explore by generalized state-dependent noise."""
    sde_sample_freq: int = -1
    """Steps between new noise of gSDE; -1 draws it once a rollout."""
    recurrent: Literal["lstm", "gru"] | None = None
    """Give the policy a memory."""
    recurrent_size: int = 64
    """Size of that memory."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_steps", "max_grad_norm", "recurrent_size")
        self.require_range("gae_lambda", 0, 1)
        self.require_range("vf_coef", 0)
        self.require_range("learning_rate", 0)
        if self.sde_sample_freq < 1 and self.sde_sample_freq != -1:
            raise ValueError(f"sde_sample_freq must be positive or -1, got {self.sde_sample_freq}")


class OnPolicy(OnlineAlgorithm):
    """Collects a rollout with the current policy, learns from it, and throws it away.

    A subclass says what an update does in `update`, with torch, and gives its native twin.

    Attributes:
        native: The policy of native code; None where torch computes.
        optimizer: Of the parameters.
    """

    Config: ClassVar[type[OnPolicyConfig]]
    config: OnPolicyConfig
    optimizer: Any

    TRUTH: ClassVar[tuple[str, ...]] = (
        "update",
        "prepare",
        "gradient_step",
        "gradient",
        "load",
        "loss",
        "make_optimizer",
    )
    """What `native_update` is the twin of; where a subclass changes one of them, torch computes."""

    @property
    def overlap(self) -> bool:
        """Whether the next rollout is collected during an update."""
        return False

    def build(self) -> None:
        """Make the policy, its optimiser and the collector."""
        config = self.config
        self.action_map = ActionMap(self.action_space, squash=config.squash_actions)
        self.native = self._make_native() if self.backend == "native" else None
        self.optimizer = self.make_optimizer()
        self.optimizers = {"policy": self.optimizer}
        self.networks = {"policy": self.policy if self.native is None else self.native.flat}
        if self.native is None:
            self._numpy_policy = nn.NumpyPolicy.of(self.policy)
            self.prepare()
        self.actor = self._make_actor()
        self.collection_reason = self.why_not_collect()
        self.collector: Any = self._make_collector()

    @abstractmethod
    def make_optimizer(self) -> Any:
        """The optimiser of the parameters; its learning rate follows the schedule."""

    def prepare(self) -> None:
        """Make what `update` needs beside policy and optimiser."""

    @abstractmethod
    def update(self, batch: OnPolicyBatch) -> Metrics:
        """Learn from one rollout."""

    @abstractmethod
    def native_update(self, native: NativePolicy, batch: OnPolicyBatch) -> Metrics:
        """What `update` does, in native code."""

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        config = self.config
        reason = self.why_not_act()
        if reason is not None:
            return reason
        for option in ("compile", "cuda_graph"):
            if getattr(config, option, False):
                return f"{option} is on"
        for cls in type(self).__mro__:
            if "native_update" in vars(cls):
                break
            changed = [name for name in self.TRUTH if name in vars(cls)]
            if changed:
                return f"{cls.__name__} changes {changed[0]}"
        return why_not_native(
            self.observation_space, self.action_space, activation=config.activation
        )

    def why_not_act(self) -> str | None:
        """Why native code cannot act for the policy, whoever learns; None when it can."""
        config = self.config
        if config.device != "cpu":
            return f"device is {config.device!r}"
        if self._custom_policy:
            return "policy is a network of its own"
        if config.recurrent is not None:
            return f"recurrent is {config.recurrent!r}"
        for option in ("use_gsde", "squash_actions"):
            if getattr(config, option):
                return f"{option} is on"
        return None

    @property
    def minibatch(self) -> int:
        """Rows of a gradient step."""
        return self.config.n_envs * self.config.n_steps

    @cached_property
    def flat(self) -> nn.FlatParameters:
        """The parameters in one block, which the module views."""
        if self.native is None:
            return nn.FlatParameters(self._make_policy().to(self.device), self.device)
        return nn.FlatParameters(self._make_policy(), memory=self.native.flat)

    @property
    def policy(self) -> Any:
        """The network, a torch module. Native code works on the same memory."""
        return self.flat.module

    def few_threads(self) -> contextlib.AbstractContextManager[None]:
        """Inside, torch has as many threads as help."""
        return super().few_threads() if self.native is None else contextlib.nullcontext()

    @property
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes finished in training."""
        episodes: Episodes = self.collector.episodes
        return episodes

    def player(self, n_envs: int, deterministic: bool) -> Player:
        """The policy, ready to play `n_envs` environments from their start."""
        if self.native is not None:
            return NativeActor(
                self.native,
                None if deterministic else self._play_generator,
                normalizer=self.normalizer,
                action_map=self.action_map,
            )
        actor = PolicyActor(
            self.policy,
            n_envs,
            self._play_generator,
            deterministic=deterministic,
            normalizer=self.normalizer,
            action_map=self.action_map,
            numpy_policy=self._numpy_policy,
        )
        if not deterministic:
            actor.begin_rollout()
        return actor

    def iterate(self) -> Metrics | None:
        """One rollout, one update."""
        self.follow_schedules(self.progress_remaining)
        self.actor.begin_rollout()
        state = self.actor.state
        on_step = self._on_step if self._hooks.overrides("on_step") else None
        rollout = self.collector.collect(self.config.gamma, self.config.gae_lambda, on_step)
        self.timesteps = self.collector.timesteps
        self.timings.update(self.collector.timings)
        if rollout is None:
            return None
        self._rollout_ended()
        began = time.perf_counter()
        metrics = self.update(self._batch_of(rollout, state))
        self.timings["update"] += time.perf_counter() - began
        return {**metrics, "learning_rate": self.optimizer.lr}

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set what follows the progress of the run."""
        self.optimizer.set_lr(value_at(self._learning_rate_schedule(), progress_remaining))

    def _learning_rate_schedule(self) -> ScheduleLike:
        rate = self.config.learning_rate
        if self.config.anneal_lr and isinstance(rate, int | float):
            return Linear(rate, 0.0)
        return rate

    def _on_step(self, mean_reward: float) -> bool:
        self.timesteps = self.collector.timesteps
        return self._call_hook("on_step", reward=mean_reward)

    def _rollout_ended(self) -> None:
        mean_reward = self.episodes.mean_return
        self._call_hook("on_rollout_end", mean_reward=mean_reward, update=self.updates)
        self.loggers.on_rollout_end(
            self.timesteps,
            {"mean_reward": mean_reward, "mean_length": self.episodes.mean_length},
        )

    def _make_actor(self) -> PolicyActor | NativeActor:
        if self.native is not None:
            return NativeActor(self.native, self.generator)
        return PolicyActor(
            self.policy,
            self.config.n_envs,
            self.generator,
            noise_every=self.config.sde_sample_freq,
            numpy_policy=self._numpy_policy,
        )

    def why_not_collect(self) -> str | None:
        """Why native code cannot collect whole rollouts; None when it does."""
        if self.native is None:
            return "torch acts"
        return NativeRollouts.why_not(self.env)

    def _make_collector(self) -> OnPolicyCollector | NativeRollouts | TensorCollector:
        config = self.config
        if self.collection_reason is not None:
            if self.overlap:
                raise ValueError(f"overlap must be False: {self.collection_reason}")
            if self._stays_on_device:
                return self._make_tensor_collector()
            return OnPolicyCollector(
                self.env, self.actor, self.action_map, n_steps=config.n_steps, seed=self.env_seed
            )
        weights = self.flat.block if self.native is None else self.native.flat.data
        return NativeRollouts(
            self.env,
            weights,
            hidden=config.hidden,
            activation=config.activation,
            n_steps=config.n_steps,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            seed=self.env_seed,
            action_seed=self._noise_seed,
            threads=native_threads(config.threads, weights.size * config.n_envs),
            overlap=self.overlap,
        )

    @property
    def _stays_on_device(self) -> bool:
        """Whether rollouts are tensors from the beginning."""
        if self.native is not None or autoreset_mode(self.env) == "next_step":
            return False
        return self.device.type != "cpu" or isinstance(self.env, TensorVectorEnv)

    def _make_tensor_collector(self) -> TensorCollector:
        assert isinstance(self.actor, PolicyActor)
        is_there = isinstance(self.env, TensorVectorEnv) and self.env.device == self.device
        steps = (TensorSteps if is_there else HostSteps)(self.env, self.action_map, self.device)
        return TensorCollector(
            steps,
            self.actor,
            n_envs=self.config.n_envs,
            n_steps=self.config.n_steps,
            seed=self.env_seed,
            device=self.device,
        )

    def _batch_of(self, rollout: Any, state: torch.Tensor | None) -> OnPolicyBatch:
        if isinstance(self.collector, TensorCollector):
            return OnPolicyBatch.from_columns(self.collector.columns(), state)
        device = self.device if self.native is None else None
        return OnPolicyBatch.from_rollout(rollout, device, state)

    def _make_native(self) -> NativePolicy:
        config, spaces = self.config, (self.observation_space, self.action_space)
        layout = PolicyLayout.of(*spaces, hidden=config.hidden, activation=config.activation)
        flat = layout.first_parameters(self.weights_generator, log_std_init=config.log_std_init)
        threads = native_threads(config.threads, layout.n_parameters * self.minibatch)
        return NativePolicy(*spaces, layout, flat, draws=self.generator, threads=threads)

    def _make_policy(self) -> Any:
        if self._custom_policy:
            return nn.CustomPolicy(self._given_policy)
        # Layers draw first weights from torch's global generator, which is not ours to move.
        with torch.random.fork_rng(devices=[]):
            return self._make_actor_critic()

    def _make_actor_critic(self) -> Any:
        config = self.config
        return nn.ActorCritic(
            self.observation_space,
            self.action_space,
            hidden=config.hidden,
            activation=config.activation,
            log_std_init=config.log_std_init,
            squash=config.squash_actions,
            gsde=config.use_gsde,
            recurrent=config.recurrent,
            recurrent_size=config.recurrent_size,
            generator=self.weights_generator,
        )

    def close(self) -> None:
        """Close the environments, once nobody steps them any more."""
        if isinstance(self.collector, NativeRollouts):
            self.collector.close()
        super().close()

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: also where the collection stands."""
        return {
            **super().state_dict(),
            "recurrent_state": self.actor.state,
            "collector": self.collector.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        saved = state["collector"]
        # What another kind of collector wrote does not say where its episodes stand.
        same_kind = saved.keys() == self.collector.state_dict().keys()
        in_flight = self._environments_restored and same_kind
        self.collector.load_state_dict(saved, in_flight=in_flight)
        if in_flight and state["recurrent_state"] is not None:
            self.actor.state = torch.from_numpy(state["recurrent_state"]).to(self.device)
