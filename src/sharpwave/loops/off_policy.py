"""The loop of learners that learn from replay."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sharpwave.collect import (
    NonFiniteError,
    OffPolicyCollector,
    Transitions,
    VectorStep,
    episode_metrics,
)
from sharpwave.collect.off_policy import OBSERVATION
from sharpwave.config.off_policy import DEVICE, ReplayConfig
from sharpwave.core.finite import all_finite
from sharpwave.core.notice import notice
from sharpwave.envs import TensorVectorEnv, goal_rewards
from sharpwave.learners import Metrics, Seeds
from sharpwave.learners.actor import Actor
from sharpwave.learners.columns import declared_columns
from sharpwave.learners.replay import ReplayBatch, ReplaySampler
from sharpwave.loops.environments import EnvironmentLoop
from sharpwave.loops.loop import Run, means
from sharpwave.loops.pace import Pace
from sharpwave.loops.random_actions import RandomActions
from sharpwave.loops.replay_store import ReplayStore
from sharpwave.loops.source import find_normalizer, without_normalizer
from sharpwave.storage.files import count_of
from sharpwave.tensors import TensorTransitionCollector
from sharpwave.tensors.actions import tensor_actions
from sharpwave.types import Array, Nested

__all__ = ["OffPolicyLoop"]

Round = tuple["Transitions | None", Any, "VectorStep | None"]
"""One step of every environment: rows for the buffer, the mean reward, maybe as a tensor, and the
transitions for callbacks, if one takes them."""


class OffPolicyLoop(EnvironmentLoop):
    """Collects steps into a buffer and learns from batches of it.

    An update is `train_freq` steps of every environment and the gradient steps that follow. A run
    hears of the progress every `log_interval` steps, and where a callback wants to.

    Args:
        learner: The learner, which acts too.
        config: Options.
        env: A vector environment whose steps are raw.
        seeds: Of environments, random actions and draws.
        subject: The environments, in words.
        normalizer: Of observations and rewards; None for none.
        buffer: In place of the one that the configuration asks for.
        make_goal_env: Makes an environment that tells the reward of a goal.

    Attributes:
        actor: The learner at work in the environments, or with `overlap` a copy of it.
        collector: The collector that steps them.
        store: The store of the replay buffer.
    """

    seeds = staticmethod(Seeds.of_replay)
    config: ReplayConfig

    def __init__(
        self,
        learner: Any,
        config: ReplayConfig,
        env: Any,
        *,
        seeds: Seeds,
        subject: str,
        normalizer: Any = None,
        buffer: Any = None,
        make_goal_env: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(learner, config, env, subject)
        assert seeds.exploring is not None
        self.normalizer = normalizer
        acting = learner.acting_copy() if config.overlap else learner
        own = declared_columns(learner)
        self.actor = Actor(acting, config.n_envs, explore=True, normalizer=normalizer, columns=own)
        self.random_actions = RandomActions(learner.action_space, seeds.exploring)
        self.store = ReplayStore(
            env, config, given=buffer, seed=seeds.drawing, device=learner.device_name, columns=own
        )
        self.collector = self._make_collector(seeds, buffer)
        self._choose = self._choose_arrays
        if isinstance(self.collector, TensorTransitionCollector):
            self._to_tensor_env = tensor_actions(learner.action_map, learner.device)
            self._choose = self._choose_tensors
        self._goal_rewards: Any = None
        if config.draws.her_goals:
            self._goal_rewards = goal_rewards(env, partial(self._keep_goal_env, make_goal_env))
        self._sampler: ReplaySampler | None = None
        self._extra: Mapping[str, Any] | None = None
        self._pace = Pace(config, self.ranks.size)
        self._learns_after = config.learning_starts
        self._rounds_taken = self._steps_taken = 0
        self._own_steps = 0  # that other processes do not know of
        self._n_ready = 0  # processes whose buffer holds a batch
        self._origin = "the checkpoint"

    def _keep_goal_env(self, make: Callable[[], Any] | None) -> Any:
        assert make is not None
        self._goal_env = make()  # its method alone would not keep it open
        return self._goal_env

    @classmethod
    def of(cls, agent: Any, choice: Any) -> OffPolicyLoop:
        """The loop of an agent around the learner that was chosen."""
        env = without_normalizer(agent.env)
        if find_normalizer(env) is not None:
            raise ValueError("env must have its VecNormalize outermost: steps are stored raw")
        return cls(
            choice.learner,
            agent.own_config,
            env,
            seeds=choice.learner.seeds,
            subject=f"{agent.config.n_envs} x {agent.env_id or 'an environment without an id'}",
            normalizer=agent.normalizer,
            buffer=agent.given_buffer,
            make_goal_env=agent.make_env,
        )

    @staticmethod
    def why_not_native(config: ReplayConfig, buffer: Any) -> str | None:
        """Why native code cannot learn from the buffer; None when it can."""
        return 'buffer is "device"' if config.buffer == DEVICE and buffer is None else None

    def _make_collector(self, seeds: Seeds, buffer: Any) -> Any:
        """The collector: one on the device where environments, policy and buffer are all there."""
        env, learner = self.env, self.learner
        to_device = self.config.buffer == DEVICE and buffer is None and learner.takes_tensors
        is_there = isinstance(env, TensorVectorEnv) and to_device and env.device == learner.device
        if is_there and self.normalizer is None and not self.config.overlap:
            return TensorTransitionCollector(env, seed=seeds.env)
        return OffPolicyCollector(env, seed=seeds.env)

    # What it has

    @property
    def gradient_steps(self) -> int:
        """Gradient steps so far."""
        steps: int = self.learner.updates
        return steps

    def progress_metrics(self) -> dict[str, float]:
        """Measures of the last episodes, and gradient steps so far."""
        return {**episode_metrics(self.episodes), "gradient_steps": float(self.gradient_steps)}

    @property
    def buffer(self) -> Any:
        """The steps to learn from."""
        _ = self.sampler
        return self.store.buffer

    @property
    def sampler(self) -> ReplaySampler:
        """The sampler that draws batches of the buffer."""
        if self._sampler is None:
            self._open_store()
            self._sampler = self._make_sampler()
        return self._sampler

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
            notice(
                f"{self._origin} came without its replay buffer: learning goes on after "
                f"{max(self.config.learning_starts, self.config.steps_per_batch):,} new steps"
            )

    def _make_sampler(self) -> ReplaySampler:
        config = self.config
        sampler: ReplaySampler = self.learner.Sampler(
            self.store.source,
            config.batch_size,
            view=self.store.view(self._goal_rewards),
            gamma=config.gamma,
            learner=self.learner,
            has_masks=self.collector.has_masks,
            normalizer=self.normalizer,
            n_step=config.draws.n_step,
            columns=self.store.columns,
            selector=self.store.selector(),
        )
        return sampler

    def begin_in(self, folder: Path) -> None:
        """Keep the buffer with the run, where that is asked for."""
        super().begin_in(folder)
        if self.config.keep_replay and not self.store.is_open:
            rank = self.ranks.rank
            self.store.keep_in(folder / (f"replay-{rank}" if rank else "replay"))

    def close(self) -> None:
        """Close the folder of a buffer on disk, which stays."""
        self.store.close()

    # For a loop of one's own

    def collect(self) -> int:
        """Step every environment until an update is due, into the buffer.

        Returns:
            How many steps that were.
        """
        _ = self.sampler
        self._take(None, None)
        self._meet(None)
        return self._end_round()

    @property
    def can_learn(self) -> bool:
        """True once the run is past `learning_starts` and the buffer holds a batch."""
        if self.timesteps < self._learns_after:
            return False
        return (
            self.store.has_a_batch() if self.ranks.size == 1 else self._n_ready == self.ranks.size
        )

    def gradient_steps_due(self, collected: int) -> int:
        """Gradient steps that follow so many environment steps; a fraction is carried on."""
        return self._pace.due(collected) if self.can_learn else 0

    def follow(self, progress_remaining: float) -> None:
        """Set what follows the progress of a run: schedules, and weights of prioritized draws."""
        super().follow(progress_remaining)
        self.store.follow(progress_remaining)

    def sample(self) -> ReplayBatch:
        """A batch to learn from, which the next one may overwrite."""
        return self.sampler.sample()

    def report(self, batch: ReplayBatch, metrics: Metrics) -> None:
        """Write to the buffer what a batch taught of its steps: priorities, or latent states."""
        self.sampler.report(batch, metrics)

    # In a run

    def iterate(self, run: Run) -> Metrics | None:
        """Collect and learn until the next report of metrics."""
        end = self._next_report(run)
        measured: list[Metrics] = []
        following: Future[list[Round]] | None = None
        _ = self.sampler
        self.collector.is_watched = run.hears("on_step", "transitions")
        with ThreadPoolExecutor(1, "collect") as pool:  # which starts no thread for nothing
            while True:
                self._take(following, run)
                stops = self._meet(run)
                self.follow(run.progress_remaining)
                if stops:
                    break  # the update of these steps waits until the run goes on
                collected, done = self._end_round(), self.timesteps >= end
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
        self._share_episodes()
        run.rollout_ended(self.episodes)
        return {**means(measured), **self.learner.metrics()} if measured else {}

    def _next_report(self, run: Run) -> int:
        end = min(self.timesteps + self.config.log_interval, run.target_timesteps)
        due = self.ranks.first(run.due_step())
        return end if due is None else max(min(end, due), self.timesteps + 1)

    def _meet(self, run: Run | None) -> bool:
        """Count the steps of all processes that learn together; True if they stop.

        They also merge the statistics of observations and rewards.
        """
        if self.ranks.is_alone:
            return run is not None and run.stop_reason is not None
        own, self._own_steps = self._own_steps, 0
        is_asked = run is not None and run.asked_to_stop is not None
        steps, n_asked, n_ready = self.ranks.sums(own, is_asked, self.store.has_a_batch())
        self.timesteps += int(steps) - own
        self._steps_taken += int(steps) - own
        self._n_ready = int(n_ready)
        if self.normalizer is not None:
            self.normalizer.merge_over(self.ranks.gather)
        return n_asked > 0

    def _end_round(self) -> int:
        """Forget what was collected since the last update, and act with the policy of now.

        With `overlap` the next rounds act with the policy before it learns from these, whether a
        thread collects them or not, so that a run does not depend on where its reports are.
        """
        collected, self._steps_taken, self._rounds_taken = self._steps_taken, 0, 0
        self._pace.updated(self.collector.episodes.count)
        if self.config.overlap:
            self.actor.learner.copy_acting(self.learner)
        return collected

    # Collecting

    def _rounds(self) -> Iterator[Round]:
        """Steps the environments until an update is due, each time when it is asked for."""
        taken = self._rounds_taken
        while self._pace.collects(taken, self.collector.episodes.count):
            taken += 1
            rows, reward = self.collector.step(self._choose)
            if self._extra and rows is not None:  # what the learner gave, if it acted
                rows = rows.with_extra(self._extra)
            yield rows, reward, self.collector.taken

    @property
    def _is_random(self) -> bool:
        """True while actions are drawn at random, before `learning_starts`."""
        return bool(self.collector.timesteps * self.ranks.size < self.config.learning_starts)

    def _choose_arrays(self, obs: Nested, masks: Any) -> Array:
        collector, self._extra = self.collector, None
        if self._is_random:
            return self.random_actions.draw(self.env.num_envs, masks)
        acted = self.actor.act(obs, collector.starts, masks)
        actions, self._extra = acted.actions, acted.extra
        if actions.dtype.kind == "f" and not all_finite(actions):
            raise NonFiniteError(
                f"actions must be finite, got {actions} at step {collector.timesteps}: "
                "learning diverged"
            )
        env_actions: Array = self.learner.action_map.to_env(actions)
        return env_actions

    def _choose_tensors(self, obs: Any, masks: Any) -> Any:
        collector, self._extra = self.collector, None
        if self._is_random:
            allowed = None if masks is None else masks.cpu().numpy()
            return self.learner.own(self.random_actions.draw(self.env.num_envs, allowed))
        acted = self.actor.act_tensors(obs, collector.starts, masks)
        actions, self._extra = acted.actions, acted.extra
        collector.watch.look(actions)
        return self._to_tensor_env.to_env(actions)

    def _take(self, following: Future[list[Round]] | None, run: Run | None) -> None:
        """Put the rounds of an update into the buffer, until a callback stops the run."""
        rounds = self._rounds()
        if self.config.overlap:
            rounds = iter(list(rounds) if following is None else following.result())
        try:
            for rows, reward, taken in rounds:
                self._store_round(rows)
                if run is not None and run.hears("on_step"):
                    sees: Any = partial(VectorStep.normalized, taken, self.normalizer)  # type: ignore[arg-type]
                    if not run.tell_step(float(reward), sees):
                        break
        finally:
            if self.config.overlap:  # these happened, whoever does not want to hear of them
                for rows, _, _ in rounds:
                    self._store_round(rows)

    def _store_round(self, rows: Transitions | None) -> None:
        self._rounds_taken += 1
        if rows is None:
            return
        self.store.write(rows)
        if self.normalizer is not None:
            masked = self.collector.has_masks
            self.normalizer.count_step(
                rows.obs[OBSERVATION] if masked else rows.obs,
                rows.rewards,
                rows.terminated | rows.truncated,
                rows.next_obs[OBSERVATION] if masked else rows.next_obs,
                rows.streams,
            )
        self.timesteps += len(rows.rewards)
        self._steps_taken += len(rows.rewards)
        self._own_steps += len(rows.rewards)

    def restart(self) -> None:
        """Count from 0 again, with random actions first."""
        super().restart()
        self._rounds_taken = self._steps_taken = 0
        self._learns_after = self.config.learning_starts

    def _keep(self, following: Future[list[Round]] | None) -> None:
        """Store what a thread collects while something else goes wrong, which is what counts."""
        with contextlib.suppress(Exception):
            for rows, _, _ in [] if following is None else following.result():
                self._store_round(rows)

    # Learning

    def _learn(self, collected: int) -> list[Metrics]:
        """The gradient steps of an update, and what each of them measured."""
        count = self.gradient_steps_due(collected)
        return self.take_gradient_steps(count) if count else []

    def take_gradient_steps(
        self, count: int, sampler: ReplaySampler | None = None
    ) -> list[Metrics]:
        """Learn from batches of the buffer, or of what another sampler draws from.

        Returns:
            What each of them measured.
        """
        began = time.perf_counter()
        sampler, learner = sampler or self.sampler, self.learner
        sampler.refresh()
        measured = []
        for _ in range(count):
            batch = sampler.as_batch(sampler.draw())
            before = learner.updates
            metrics = learner.update(batch)
            learner.updates = max(learner.updates, before + 1)  # that of a user may not count
            sampler.report(batch, metrics)
            measured.append({k: x for k, x in metrics.items() if k not in sampler.written})
        self.timings["update"] += time.perf_counter() - began
        return measured

    # In checkpoints

    def keeping_all(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the state holds the buffer, whatever `save_buffer` says."""
        return self.store.keeping_all()

    def state_dict(self) -> dict[str, Any]:
        """State of the collection of steps, and of the buffer."""
        acting = self.actor.learner.acting_state() if self.config.overlap else None
        return {
            "random_actions": self.random_actions.state_dict(),
            "acting_policy": acting,
            "acting_state": self.actor.memory_arrays(),
            "given": sorted(self.learner.given),
            "learns_after": self._learns_after,
            "rounds_taken": self._rounds_taken,
            "steps_taken": self._steps_taken,
            "pace": self._pace.state_dict(),
            "collector": self.collector.state_dict(),
            "buffer": self.store.state_dict(keep=self.keeps_replay and self.config.keep_replay),
        }

    def adapted(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of a learner and its loop in an older file, as files have it now.

        Raises:
            ValueError: A network of the user's is not given.
        """
        for name in state["given"]:
            if name not in self.learner.given:
                raise ValueError(f"{name} must be given: the checkpoint has one of your own")
        extra = state["extra"]
        if "target_copied_at" in extra:
            # Older files have the step of the run at which the target network was copied.
            rounds = self.config.train_freq - count_of(state, "rounds_taken")
            next_step = self.timesteps + rounds * self.config.n_envs
            age = next_step - int(extra["target_copied_at"])
            return {**state, "extra": {**extra, "target_age": age}}
        return state

    def load_state_dict(self, state: dict[str, Any], *, in_flight: bool, source: str) -> None:
        """Continue from `state_dict`."""
        self._origin = source
        self._rounds_taken = count_of(state, "rounds_taken")
        self.random_actions.load_state_dict(state["random_actions"])
        if self.config.overlap:
            self.actor.learner.copy_acting(self.learner)
            if state["acting_policy"] is not None:
                self.actor.learner.load_acting_state(state["acting_policy"])
        self._learns_after = count_of(state, "learns_after")
        self._steps_taken = count_of(state, "steps_taken")
        if "pace" in state:  # not in files of before there was a ratio
            self._pace.load_state_dict(state["pace"])
        self.collector.load_state_dict(state["collector"], in_flight=in_flight)
        if in_flight and self.actor.state is not None:
            # Files of before loops kept it have the memory beside what the learner adds.
            saved = state["acting_state"] if "acting_state" in state else state["extra"]
            self.actor.load_memory_arrays(saved)
        if self.normalizer is not None and not in_flight:
            self.normalizer.restart()
        self.store.load_state_dict(state["buffer"], source)
        self._sampler = None
