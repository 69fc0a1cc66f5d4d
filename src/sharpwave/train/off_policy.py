"""The loop of algorithms that learn from replay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sharpwave.collect import EpisodeStats, OffPolicyCollector, Transitions
from sharpwave.lazy import torch
from sharpwave.train.algorithm import Metrics
from sharpwave.train.online import OnlineAlgorithm, OnlineConfig
from sharpwave.train.random_actions import RandomActions
from sharpwave.train.replay import ReplaySampler
from sharpwave.train.replay_learner import ReplayLearner
from sharpwave.train.replay_store import ReplayStore
from sharpwave.train.schedules import ScheduleLike, value_at
from sharpwave.types import Array, Nested

Round = tuple["Transitions | None", float]
"""One step of every environment: rows for the buffer, and the mean reward."""


@dataclass(frozen=True, kw_only=True)
class OffPolicyConfig(OnlineConfig):
    """Options of every algorithm that learns from replay."""

    n_envs: int = 1
    """Number of environments."""
    buffer_size: int = 1_000_000
    """Steps that the buffer keeps."""
    batch_size: int = 256
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Step size of the optimisers; a schedule follows the progress of the run."""
    learning_starts: int = 1000
    """Environment steps with random actions before learning starts."""
    train_freq: int = 1
    """Steps of every environment between two updates."""
    gradient_steps: int = 1
    """Gradient steps of an update, each on a batch of its own; -1 for as many as environment steps
    were collected."""
    n_step: int = 1
    """Steps until the target bootstraps."""
    prioritized: bool = False
    """Draw steps by the size of their last error."""
    alpha: float = 0.6
    """How much priorities count."""
    beta_start: float = 0.4
    """How much weights correct for that at the start; they end at 1."""
    buffer: str = "memory"
    """Where the buffer lies: in memory, or in the folder of this path. The constructor also takes a
    buffer itself."""
    frame_stack: int = 1
    """Image observations are stacks of this many frames along the first axis, which the buffer
    stores once each."""
    her_goals: int = 0
    """Steps relabelled with goals that were reached later, per original one (HER)."""
    her_strategy: Literal["future", "final", "episode"] = "future"
    """Where those goals come from."""
    overlap: bool = False
    """Collect the steps of the next update in a thread while learning."""
    save_buffer: bool = False
    """Put the buffer into checkpoints."""
    log_interval: int = 1000
    """Environment steps between two reports of metrics."""
    max_grad_norm: float | None = None
    """Longest gradient; longer ones are scaled down to it."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; one number stands for two layers."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation of the hidden layers."""
    compile: bool = False
    """Compile the losses with torch.compile."""

    def __post_init__(self) -> None:
        hidden: Any = self.hidden
        if isinstance(hidden, int):
            object.__setattr__(self, "hidden", (hidden, hidden))
        super().__post_init__()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive(
            "buffer_size", "batch_size", "train_freq", "n_step", "frame_stack", "log_interval"
        )
        self.require_positive("max_grad_norm")
        self.require_range("learning_rate", 0)
        self.require_range("learning_starts", 0)
        self.require_range("her_goals", 0)
        self.require_range("alpha", 0)
        self.require_range("beta_start", 0, 1)
        if self.gradient_steps < 0 and self.gradient_steps != -1:
            raise ValueError(f"gradient_steps must be at least 0 or -1, got {self.gradient_steps}")
        if self.her_goals and self.n_step > 1:
            raise ValueError("her_goals needs n_step=1: a new goal changes the rewards on the way")


class OffPolicy(ReplayLearner, OnlineAlgorithm):
    """Collects steps into a buffer and learns from batches of it.

    A subclass gives `build_networks`, `gradient_step` and `act`.

    Args:
        env_id: As for every algorithm, and so on.
        buffer: "memory", a folder, or a buffer: one of this library, or anything with
            `push(obs, action, reward, terminated, truncated, next_obs)`, `sample(batch_size)` and a
            length.
    """

    Config: ClassVar[type[OffPolicyConfig]]
    config: OffPolicyConfig

    def __init__(self, env_id: Any, *args: Any, buffer: Any = None, **options: Any) -> None:
        if isinstance(buffer, str):
            options["buffer"], buffer = buffer, None
        self._given_buffer = buffer
        super().__init__(env_id, *args, **options)

    # Construction

    def build(self) -> None:
        """Make networks, buffer and collector."""
        config = self.config
        self.gradient_steps = 0
        seeds = np.random.SeedSequence(self._noise_seed).generate_state(4, np.uint64) >> 1
        learning, exploring, playing, drawing = (int(seed) for seed in seeds)
        self.generator = torch.Generator(self.device).manual_seed(learning)
        self.explore_generator = torch.Generator(self.device).manual_seed(exploring)
        self._play_generator = torch.Generator(self.device).manual_seed(playing)
        self.random_actions = RandomActions(self.action_space, exploring)
        self._set_action_form()
        with torch.random.fork_rng(devices=[]):
            self.build_networks()
        self._acting = deepcopy(self.policy) if config.overlap else self.policy
        self.collector = OffPolicyCollector(self.env, seed=self.env_seed)
        self.collector.reset()
        self.store = ReplayStore(
            self.env,
            config,
            masks=self.collector.n_choices if self.collector.has_masks else None,
            given=self._given_buffer,
            seed=drawing,
        )
        self.sampler = self._make_sampler()
        self._pool = ThreadPoolExecutor(1, "collect")

    def _make_sampler(self) -> ReplaySampler:
        config = self.config
        return ReplaySampler(
            self.store.buffer,
            config.batch_size,
            view=self.store.view(self.env),
            gamma=config.gamma,
            device=self.device,
            **self.action_form(),
        )

    # A run

    @property
    def buffer(self) -> Any:
        """The steps to learn from."""
        return self.store.buffer

    @property
    def episodes(self) -> EpisodeStats:
        """Returns and lengths of the episodes finished in training."""
        return self.collector.episodes

    def iterate(self) -> Metrics | None:
        """Collect and learn until the next report of metrics."""
        end = min(self.timesteps + self.config.log_interval, self.target_timesteps)
        measured: list[torch.Tensor] = []
        rounds: Iterable[Round] | None = self._rounds()
        while rounds is not None:
            before = self.timesteps
            go_on = self._take(rounds) and self.timesteps < end
            self.follow_schedules(self.progress_remaining)
            following = self._start_collecting() if go_on and self.config.overlap else None
            if self._may_learn() and self.stop_reason is None:
                began = time.perf_counter()
                measured += self._learn(self.timesteps - before)
                self.timings["update"] += time.perf_counter() - began
            if following is not None:
                rounds = following.result()
            else:
                rounds = self._rounds() if go_on else None
        self._rollout_ended()
        return self.means(measured) if measured else {}

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set what follows the progress of the run."""
        rate = value_at(self.config.learning_rate, progress_remaining)
        for optimizer in self.optimizers.values():
            optimizer.set_lr(rate)
        self.store.follow(progress_remaining)

    def _may_learn(self) -> bool:
        # After a checkpoint without its buffer there is little to learn from at first.
        wanted = min(max(self.config.learning_starts, self.config.batch_size), self.store.capacity)
        return self.timesteps >= self.config.learning_starts and len(self.buffer) >= wanted

    def _learn(self, collected: int) -> list[torch.Tensor]:
        count = self.config.gradient_steps
        measured = []
        for _ in range(collected if count == -1 else count):
            batch = self.sampler.sample()
            measured.append(self.gradient_step(batch))
            self.gradient_steps += 1
            self.sampler.report(batch)
        return measured

    def _rounds(self) -> Iterator[Round]:
        """Steps the environments `train_freq` times, each when it is asked for."""
        for _ in range(self.config.train_freq):
            yield self.collector.step(self._choose)

    def _start_collecting(self) -> Future[list[Round]]:
        """Has a thread do the next rounds, with the policy as it is now."""
        self._acting.load_state_dict(self.policy.state_dict())
        return self._pool.submit(lambda: list(self._rounds()))

    def _take(self, rounds: Iterable[Round]) -> bool:
        """Put rounds into the buffer; False if a callback stops the run."""
        for rows, reward in rounds:
            if rows is not None:
                self.store.write(rows)
                self.timesteps += len(rows.rewards)
            if not self._on_step(reward):
                return False
        self.timings.update(self.collector.timings)
        return True

    def _on_step(self, reward: float) -> bool:
        return not self._hooks.overrides("on_step") or self._call_hook("on_step", reward=reward)

    def _choose(self, obs: Nested, masks: Any) -> Array:
        if self.collector.timesteps < self.config.learning_starts:
            return self.random_actions.draw(self.env.num_envs, masks)
        return self._to_env(self._act(obs, masks, self._acting, True, self.explore_generator))

    def _rollout_ended(self) -> None:
        mean_reward = self.episodes.mean_return
        self._call_hook("on_rollout_end", mean_reward=mean_reward, update=self.updates)
        self.loggers.on_rollout_end(
            self.timesteps,
            {"mean_reward": mean_reward, "mean_length": self.episodes.mean_length},
        )

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed, with the collection and the buffer."""
        return {
            **super().state_dict(),
            "explore_generator": self.explore_generator.get_state(),
            "random_actions": self.random_actions.state_dict(),
            "gradient_steps": self.gradient_steps,
            "collector": self.collector.state_dict(),
            "buffer": self.store.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        super().load_state_dict(state)
        if state["generator"]["device"] == self.device.type:
            self.explore_generator.set_state(torch.from_numpy(state["explore_generator"]))
        self.random_actions.load_state_dict(state["random_actions"])
        self.gradient_steps = int(state["gradient_steps"])
        in_flight = self._environments_restored
        self.collector.load_state_dict(state["collector"], in_flight=in_flight)
        self.store.load_state_dict(state["buffer"])
        self.sampler = self._make_sampler()
