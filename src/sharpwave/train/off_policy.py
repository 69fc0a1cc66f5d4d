"""The loop of algorithms that learn from replay."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from sharpwave.buffers.views import Hindsight, NStep, Transition, View
from sharpwave.collect import (
    Episodes,
    NonFiniteError,
    OffPolicyCollector,
    TensorTransitionCollector,
    Transitions,
)
from sharpwave.collect.off_policy import OBSERVATION
from sharpwave.collect.tensor_actions import TensorActions, TensorScale
from sharpwave.envs import ActionMap, TensorVectorEnv, goal_rewards
from sharpwave.finite import all_finite
from sharpwave.lazy import torch
from sharpwave.learn import FlatArrays
from sharpwave.train.algorithm import Metrics
from sharpwave.train.array_sampler import ArrayNormalizer
from sharpwave.train.off_policy_config import DEVICE, OffPolicyConfig
from sharpwave.train.online import OnlineAlgorithm
from sharpwave.train.random_actions import RandomActions
from sharpwave.train.replay import ReplaySampler
from sharpwave.train.replay_learner import ReplayLearner
from sharpwave.train.replay_store import ReplayStore
from sharpwave.train.schedules import value_at
from sharpwave.train.source import find_normalizer, without_normalizer
from sharpwave.train.tensor_normalizer import TensorNormalizer
from sharpwave.types import Array, Nested

__all__ = ["OffPolicy", "OffPolicyConfig"]

Round = tuple["Transitions | None", Any]
"""One step of every environment: rows for the buffer, and the mean reward, maybe as a tensor."""
FIELDS = ("obs", "next_obs", "actions", "rewards")
"""What of a step a batch needs beside discounts."""


class OffPolicy(ReplayLearner, OnlineAlgorithm):
    """Collects steps into a buffer and learns from batches of it.

    A subclass gives `build_networks`, `gradient_step` and `act`.

    An update is `train_freq` steps of every environment and the gradient steps that follow. Hooks
    and loggers hear of the progress every `log_interval` environment steps, which is what `updates`
    counts, and sooner where a callback wants to.

    Args:
        env_id: As for every algorithm, and so on.
        buffer: "memory", a folder, or a buffer: one of this library, or anything with
            `push(obs, action, reward, terminated, truncated, next_obs)`, `sample(batch_size)` and a
            length.

    Attributes:
        gradient_steps: Gradient steps so far.
        collector: What steps the environments.
        store: What keeps the steps.
        acting_policy: What acts while collecting: the policy, or with `overlap` a copy of it.
    """

    Config: ClassVar[type[OffPolicyConfig]]
    config: OffPolicyConfig
    takes: ClassVar[tuple[str, ...]] = ()
    """Networks that the constructor takes in place of its own; `policy` is the first of them."""

    def __init_subclass__(cls) -> None:
        cls.named_arguments = {**OnlineAlgorithm.named_arguments, **dict.fromkeys(cls.takes)}
        super().__init_subclass__()

    def __init__(self, env_id: Any, *args: Any, buffer: Any = None, **options: Any) -> None:
        if isinstance(buffer, str | os.PathLike):
            options["buffer"], buffer = os.fspath(buffer), None
        self._given_buffer = buffer
        self.given = {name: options.pop(name, None) for name in self.takes}
        super().__init__(env_id, *args, **options)

    # What a subclass may give beside `build_networks`, `gradient_step` and `act`

    def explore(self, obs: Any, masks: torch.Tensor | None) -> torch.Tensor:
        """Actions to collect experience with, one for each of the environments."""
        return self.act(
            self.acting_policy, obs, masks, explore=True, generator=self.explore_generator
        )

    def native_explore(self, inputs: Array, masks: Any) -> Array:
        """What `explore` does, in native code."""
        return self.native_act(self.acting_policy, inputs, masks, self.explore_generator)

    # Construction

    def build(self) -> None:
        """Make networks and collector; the buffer waits until there is something to store."""
        config = self.config
        self._name_given()
        env = without_normalizer(self.env)
        if find_normalizer(env) is not None:
            raise ValueError("env must have its VecNormalize outermost: steps are stored raw")
        self.gradient_steps = 0
        seeds = np.random.SeedSequence(self._noise_seed).generate_state(4, np.uint64) >> 1
        learning, exploring, playing, drawing = (int(seed) for seed in seeds)
        self.generator = self._make_generator(learning)
        self.explore_generator = self._make_generator(exploring)
        self._play_generator = self._make_generator(playing)
        self.random_actions = RandomActions(self.action_space, exploring)
        self._set_action_form()
        self._make_networks(compile=config.compile, cuda_graph=config.cuda_graph)
        self.acting_policy = self.playing_policy
        if config.overlap:
            copy = deepcopy if self.native is None else FlatArrays.copy
            self.acting_policy = copy(self.acting_policy)
        self.collector = self._make_collector(env)
        self.store = ReplayStore(
            env, config, given=self._given_buffer, seed=drawing, device=self.config.device
        )
        self._goal_rewards = goal_rewards(env, self._make_goal_env) if config.her_goals else None
        self._sampler: ReplaySampler | None = None
        self._learns_after = config.learning_starts
        self._rate: float | None = None
        self._rounds_taken = self._steps_taken = 0

    def _make_collector(self, env: Any) -> OffPolicyCollector | TensorTransitionCollector:
        """Where environments, policy and buffer are on one device, steps stay there."""
        to_device = self.config.buffer == DEVICE and self._given_buffer is None
        is_there = isinstance(env, TensorVectorEnv) and env.device == self.device
        if to_device and is_there and self.normalizer is None and not self.config.overlap:
            self._to_tensor_env: TensorActions | TensorScale
            if self.action_scale is None:
                self._to_tensor_env = TensorActions(ActionMap(self.action_space), self.device)
            else:
                self._to_tensor_env = TensorScale(self.action_scale, self.device)
            return TensorTransitionCollector(env, seed=self.env_seed)
        return OffPolicyCollector(env, seed=self.env_seed)

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        given = [name for name, network in self.given.items() if network is not None]
        if self._given_policy is not None or given:
            return f"{(given or ['policy'])[0]} is a network of its own"
        if self.config.buffer == DEVICE and self._given_buffer is None:
            return 'buffer is "device"'
        return super().why_not_native()

    @classmethod
    def _is_option(cls, name: str, value: Any) -> bool:
        is_buffer = name == "buffer" and not isinstance(value, str)
        return not is_buffer and super()._is_option(name, value)

    def _name_given(self) -> None:
        if self.takes:
            # Which of them a checkpoint needs, its state says by their own names.
            self._custom_policy = False
            if self._given_policy is not None:
                self.given[self.takes[0]] = self._given_policy

    def _make_goal_env(self) -> Any:
        self._goal_env = self.make_env(1)  # kept: its method alone would not keep it open
        return self._goal_env

    @property
    def sampler(self) -> ReplaySampler:
        """What draws batches of the buffer."""
        if self._sampler is None:
            self._open_store()
            self._sampler = self._make_sampler()
        return self._sampler

    @property
    def buffer(self) -> Any:
        """The steps to learn from."""
        _ = self.sampler
        return self.store.buffer

    def _open_store(self) -> None:
        """Make the buffer, for which the environments must say whether they mask actions."""
        collector = self.collector
        if collector.obs is None:
            collector.reset()
        if collector.has_masks and self._goal_rewards is not None:
            raise ValueError("her_goals does not go with action masks")
        self.store.open(collector.n_choices if collector.has_masks else None, self.timesteps)
        if self.timesteps and not len(self.store.source):
            # After a checkpoint without its buffer there is nothing to learn from at first.
            self._learns_after = self.timesteps + self.config.learning_starts

    def _make_sampler(self) -> ReplaySampler:
        config = self.config
        view: View | None = None
        if self._goal_rewards is not None:
            view = Hindsight(self._goal_rewards, config.her_goals, config.her_strategy)
        elif self.store.keeps_order:
            view = NStep(config.n_step, config.gamma, fields=FIELDS)
        elif self.store.takes_views:
            view = Transition((*FIELDS, "terminated"))
        normalizer: Any = None
        if self.normalizer is not None and self.native is not None:
            normalizer = ArrayNormalizer(self.normalizer, config.n_step)
        elif self.normalizer is not None:
            normalizer = TensorNormalizer(self.normalizer, self.device, config.n_step)
        return self.sampler_class(
            self.store.source,
            config.batch_size,
            view=view,
            gamma=config.gamma,
            device=None if self.native is not None else self.device,
            has_masks=self.collector.has_masks,
            normalizer=normalizer,
            **self.action_form(),
        )

    def close(self) -> None:
        """Close the environments, and the folder of a buffer on disk, which stays."""
        self.store.close()
        super().close()

    # A run

    @property
    def episodes(self) -> Episodes:
        """Returns and lengths of the episodes finished in training."""
        return self.collector.episodes

    def episode_metrics(self) -> dict[str, float]:
        """What is said of episodes and gradient steps beside the metrics of an update."""
        return {**super().episode_metrics(), "gradient_steps": float(self.gradient_steps)}

    def iterate(self) -> Metrics | None:
        """Collect and learn until the next report of metrics."""
        end = self._next_report()
        measured: list[Any] = []
        following: Future[list[Round]] | None = None
        _ = self.sampler
        with ThreadPoolExecutor(1, "collect") as pool:  # which starts no thread for nothing
            while True:
                self._take(following)
                self.follow_schedules(self.progress_remaining)
                if self.stop_reason is not None:
                    break  # the update of these steps waits until the run goes on
                collected, self._steps_taken, self._rounds_taken = self._steps_taken, 0, 0
                done = self.timesteps >= end
                self._follow_policy()
                overlaps = self.config.overlap and not done
                following = pool.submit(lambda: list(self._rounds())) if overlaps else None
                try:
                    measured += self._learn(collected)
                except BaseException:
                    self._keep(following)
                    raise
                if done:
                    break
        if isinstance(self.collector, TensorTransitionCollector):
            self.collector.check()
        self.timings.update(self.collector.timings)
        self._rollout_ended()
        return self.means(measured) if measured else {}

    def _next_report(self) -> int:
        end = min(self.timesteps + self.config.log_interval, self.target_timesteps)
        due = self._hooks.due_step()
        return end if due is None else max(min(end, due), self.timesteps + 1)

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set what follows the progress of the run."""
        rate = value_at(self.config.learning_rate, progress_remaining)
        if rate != self._rate:
            self._rate = rate
            for optimizer in self.optimizers.values():
                optimizer.set_lr(rate)
        self.store.follow(progress_remaining)

    # Collecting

    def _rounds(self) -> Iterator[Round]:
        """Steps the environments until an update is due, each time when it is asked for."""
        collector = self.collector
        choose: Any = self._choose
        if isinstance(collector, TensorTransitionCollector):
            choose = self._choose_tensors
        for _ in range(self.config.train_freq - self._rounds_taken):
            yield collector.step(choose)

    def _follow_policy(self) -> None:
        """With `overlap`, has the next rounds act with the policy before it learns from these.

        That is so whether a thread collects them or not, so that a run does not depend on where its
        reports are.
        """
        if not self.config.overlap:
            return
        if self.native is not None:
            self.acting_policy.data[:] = self.native.policy.data
            return
        with torch.no_grad():
            torch._foreach_copy_(_tensors(self.acting_policy), _tensors(self.policy))

    def _choose(self, obs: Nested, masks: Any) -> Array:
        if self.collector.timesteps < self.config.learning_starts:
            return self.random_actions.draw(self.env.num_envs, masks)
        if self.normalizer is not None:
            obs = self.normalizer.normalize_obs(obs)
        actions = self._explore(obs, masks)
        if actions.dtype.kind == "f" and not all_finite(actions):
            step = self.collector.timesteps
            raise NonFiniteError(
                f"actions must be finite, got {actions} at step {step}: learning diverged"
            )
        return self._to_env(actions)

    def _choose_tensors(self, obs: Any, masks: torch.Tensor | None) -> torch.Tensor:
        collector = self.collector
        assert isinstance(collector, TensorTransitionCollector)
        if collector.timesteps < self.config.learning_starts:
            allowed = None if masks is None else masks.cpu().numpy()
            return self._tensor(self.random_actions.draw(self.env.num_envs, allowed))
        with torch.no_grad():
            actions = self.explore(obs, masks)
            collector.watch.look(actions)
            return self._to_tensor_env.to_env(actions)

    def _explore(self, obs: Nested, masks: Any) -> Array:
        if self.native is not None:
            return self.native_explore(self.native.features(obs), masks)
        return self._with_tensors(self.explore, obs, masks)

    def _take(self, following: Future[list[Round]] | None) -> None:
        """Put the rounds of an update into the buffer, until a callback stops the run."""
        rounds = self._rounds()
        if self.config.overlap:
            rounds = iter(list(rounds) if following is None else following.result())
        try:
            for rows, reward in rounds:
                self._store_round(rows)
                if not self._on_step(reward):
                    break
        finally:
            if self.config.overlap:  # these happened, whoever does not want to hear of them
                for rows, _ in rounds:
                    self._store_round(rows)

    def _on_step(self, reward: Any) -> bool:
        if not self._hooks.overrides("on_step"):
            return True
        return self._call_hook("on_step", reward=float(reward))

    def _store_round(self, rows: Transitions | None) -> None:
        self._rounds_taken += 1
        if rows is None:
            return
        self.store.write(rows)
        if self.normalizer is not None:
            self.normalizer.count_step(
                rows.obs[OBSERVATION] if self.collector.has_masks else rows.obs,
                rows.rewards,
                rows.terminated | rows.truncated,
                rows.next_obs[OBSERVATION] if self.collector.has_masks else rows.next_obs,
                rows.streams,
            )
        self.timesteps += len(rows.rewards)
        self._steps_taken += len(rows.rewards)

    def _keep(self, following: Future[list[Round]] | None) -> None:
        """Store what a thread collects while something else goes wrong, which is what counts."""
        with contextlib.suppress(Exception):
            for rows, _ in [] if following is None else following.result():
                self._store_round(rows)

    def _rollout_ended(self) -> None:
        mean_reward = self.episodes.mean_return
        self._call_hook("on_rollout_end", mean_reward=mean_reward, update=self.updates)
        self.loggers.on_rollout_end(
            self.timesteps,
            {"mean_reward": mean_reward, "mean_length": self.episodes.mean_length},
        )

    # Learning

    def _learn(self, collected: int) -> list[Any]:
        """The gradient steps of an update, and what each of them measured."""
        if self.timesteps < self._learns_after or not self.store.has_a_batch():
            return []
        began = time.perf_counter()
        count = self.config.gradient_steps
        sampler = self.sampler
        if sampler.normalizer is not None:
            sampler.normalizer.refresh()
        measured = []
        for _ in range(collected if count == -1 else count):
            drawn = sampler.draw()
            numbers, batch = self._learn_from(sampler, drawn)
            measured.append(numbers)
            self.gradient_steps += 1
            sampler.report(batch)
        self.timings["update"] += time.perf_counter() - began
        return measured

    # In checkpoints

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed, with the collection and the buffer."""
        return {
            **super().state_dict(),
            "explore_generator": self.explore_generator.get_state(),
            "random_actions": self.random_actions.state_dict(),
            "acting_policy": dict(self.acting_policy.state_dict()) if self.config.overlap else None,
            "gradient_steps": self.gradient_steps,
            "given": [name for name, network in self.given.items() if network is not None],
            "learns_after": self._learns_after,
            "rounds_taken": self._rounds_taken,
            "steps_taken": self._steps_taken,
            "collector": self.collector.state_dict(),
            "buffer": self.store.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name in state["given"]:
            if self.given[name] is None:
                raise ValueError(f"{name} must be given: the checkpoint has one of your own")
        super().load_state_dict(state)
        as_own = np.asarray if self.backend == "native" else torch.from_numpy
        if state["generator"]["device"] == self._kind_of_numbers:
            self.explore_generator.set_state(as_own(state["explore_generator"]))
        self.random_actions.load_state_dict(state["random_actions"])
        self._follow_policy()
        if self.config.overlap and state["acting_policy"] is not None:
            acting = {name: as_own(x) for name, x in state["acting_policy"].items()}
            self.acting_policy.load_state_dict(acting)
        self.gradient_steps = int(state["gradient_steps"])
        self._learns_after = int(state["learns_after"])
        self._rounds_taken = int(state["rounds_taken"])
        self._steps_taken = int(state["steps_taken"])
        in_flight = self._environments_restored
        self.collector.load_state_dict(state["collector"], in_flight=in_flight)
        if self.normalizer is not None and not in_flight:
            self.normalizer.restart()
        self.store.load_state_dict(state["buffer"])
        self._sampler = self._rate = None


def _tensors(network: Any) -> list[torch.Tensor]:
    return [*network.parameters(), *network.buffers()]
