"""The loop of learners whose actors go on while they learn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sharpwave.collect import NativeRollouts, UnrollCollector
from sharpwave.distributed import Block, FleetActor, FleetCollector, ThreadFleet
from sharpwave.learners import Seeds
from sharpwave.learners.actor import FollowingActor
from sharpwave.learners.threads import native_threads
from sharpwave.learners.unrolls import UnrollBatch
from sharpwave.loops.on_policy import OnPolicyLoop

__all__ = ["ActorLearnerLoop"]


class ActorLearnerLoop(OnPolicyLoop):
    """Learns from unrolls of a fleet of actors, whose weights are some updates old.

    Args:
        learner: What learns, from `UnrollBatch`; its `weights` are what actors act with.
        config: Options.
        envs: The environments of each actor.
        **options: Of `OnPolicyLoop`.

    Attributes:
        fleet: The actors.
    """

    def __init__(self, learner: Any, config: Any, envs: Sequence[Any], **options: Any) -> None:
        self._envs = envs
        self._began = self._waited = 0.0
        super().__init__(learner, config, envs[0], **options)

    @classmethod
    def of(cls, agent: Any, choice: Any) -> ActorLearnerLoop:
        """The loop of an agent around the learner that was chosen.

        Raises:
            ValueError: There are several actors, and the environment cannot be made again.
        """
        config, source = agent.config, agent.source
        if config.n_actors > 1 and not source.can_make_another:
            raise ValueError(
                f"n_actors must be 1 where env_id is an environment without an id, got "
                f"{config.n_actors}: pass an id, or a function that makes it"
            )
        is_made = source.n_envs is not None
        others = [
            source.make_another(config.n_envs)
            if is_made
            else source.make(config.n_envs, config.env_mode)
            for _ in range(config.n_actors - 1)
        ]
        name = agent.env_id or "an environment without an id"
        return cls(
            choice.learner,
            config,
            [agent.env, *others],
            seeds=choice.learner.seeds,
            subject=f"{config.n_actors} actors x {config.n_envs} x {name}",
            why_not_act=choice.why_not_act,
        )

    @staticmethod
    def why_not_native(config: Any, buffer: Any) -> str | None:  # noqa: ARG004
        """Why native code cannot learn what is asked for; None when it can."""
        reason: str | None = config.needs_torch
        return reason

    @property
    def fleet(self) -> Any:
        """The actors."""
        return self.collector.fleet

    def collect(self, on_step: Any = None) -> Any:
        """The unrolls of an update, as the learner takes them, and the actors go on.

        Args:
            on_step: Called for every step of every actor, once it is received; False gives up.

        Returns:
            An `UnrollBatch`, or None if it was given up.
        """
        self._check_collected()
        learner = self.learner
        unrolls = self.collector.collect(learner.weights(), learner.updates, on_step)
        self.timesteps = self.collector.timesteps
        self.timings.update(self.collector.timings)
        if unrolls is None:
            return None
        return UnrollBatch.of([unroll.rollout for unroll in unrolls], learner.own)

    def progress_metrics(self) -> dict[str, float]:
        """Measures of the last episodes, and of the actors."""
        lags, stats = self.collector.lags or [0], self.fleet.stats()
        seconds = max(1e-9, time.perf_counter() - self._began)
        waited = self.collector.timings["collect"] - self._waited
        return {
            **super().progress_metrics(),
            "lag": float(np.mean(lags)),
            "lag_max": float(max(lags)),
            "dropped_unrolls": float(self.collector.dropped),
            "actors_alive": float(stats.alive),
            "learner_idle": min(1.0, waited / seconds),
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside, a run goes on; afterwards the environments stand still."""
        self._began, self._waited = time.perf_counter(), self.collector.timings["collect"]
        try:
            yield
        finally:
            self.collector.finish()

    def _make_collector(self, seeds: Seeds) -> FleetCollector:
        config = self.config
        actors = [self._make_actor(number, seeds) for number in range(len(self._envs))]
        in_step = config.deterministic
        fleet = ThreadFleet(actors, max_in_flight=config.in_flight, in_step=in_step)
        return FleetCollector(
            fleet,
            self.learner.action_map,
            n_envs=config.n_envs * len(actors),
            n_unrolls=config.n_unrolls,
            max_lag=config.max_lag,
            in_step=in_step,
        )

    def _make_actor(self, number: int, seeds: Seeds) -> FleetActor:
        config, learner, env = self.config, self.learner, self._envs[number]
        env_seed, action_seed = _own_seeds(seeds, number)
        if self.collection_reason is not None:
            actor = FollowingActor(learner, config.n_envs, action_seed, self.actor.columns)
            collector: Any = UnrollCollector(
                env, actor, learner.action_map, n_steps=config.n_steps, seed=env_seed
            )
            return FleetActor(number, env, collector, actor, config.gamma)
        block = Block(learner.weights())
        collector = NativeRollouts(
            env,
            block.weights,
            hidden=config.hidden_of("actor"),
            critic_hidden=config.hidden_of("critic"),
            activation=config.activation,
            n_steps=config.n_steps,
            gamma=config.gamma,
            gae_lambda=1.0,
            seed=env_seed,
            action_seed=action_seed,
            threads=native_threads(config.threads, block.weights.size * config.n_envs),
        )
        return FleetActor(number, env, collector, block, config.gamma)


def _own_seeds(seeds: Seeds, number: int) -> tuple[int, int]:
    """Seeds of the environments and actions of an actor."""
    states = np.random.SeedSequence([seeds.env, seeds.learning, number]).generate_state(
        2, np.uint64
    )
    env, actions = (int(state) for state in states)
    return env >> 33, actions >> 1
