"""The loop of learners whose actors go on while they learn."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from sharpwave.distributed import (
    ActorRecipe,
    EnvRecipe,
    FleetCollector,
    Followers,
    Listening,
    PolicyRecipe,
    WorkerRecipe,
    make_fleet,
)
from sharpwave.layouts.policy import why_not_native
from sharpwave.learners import Metrics, Seeds
from sharpwave.learners.actor import FollowerRecipe
from sharpwave.learners.devices import native_threads
from sharpwave.learners.unrolls import UnrollBatch
from sharpwave.loops.loop import Run
from sharpwave.loops.on_policy import OnPolicyLoop

__all__ = ["ActorLearnerLoop"]

GIVE_UP = 0.5
"""Seconds that actors have to come to rest where a run is interrupted."""


class ActorLearnerLoop(OnPolicyLoop):
    """Learns from unrolls of a fleet of actors, whose weights are some updates old.

    Args:
        learner: The learner, which takes an `UnrollBatch`; actors act with its `weights`.
        config: Options.
        env: The environments of the first actor.
        env_recipe: Recipe of such environments for the other actors; None if there is none.
        token: Secret that actors must have to join over gRPC.
        algorithm: The name by which actors elsewhere know the learner's class.
        followers: Recipe by which they make its policy.
        **options: Of `OnPolicyLoop`.

    Attributes:
        fleet: The actors.
    """

    summed = frozenset(
        {"dropped_unrolls", "actors_alive", "restarts", "lost_unrolls", "bytes_per_s"}
    )
    keeps_envs = True

    def __init__(
        self,
        learner: Any,
        config: Any,
        env: Any,
        *,
        env_recipe: EnvRecipe | WorkerRecipe | None,
        token: str | None = None,
        algorithm: str | None = None,
        followers: Followers | None = None,
        **options: Any,
    ) -> None:
        self._env_recipe, self._token = env_recipe, token
        self._algorithm, self._followers = algorithm, followers
        self._acting_reason = options["why_not_act"] or why_not_native(
            env.single_observation_space, env.single_action_space
        )
        self._is_asked_to_stop: Callable[[], bool] = lambda: False
        self._began = self._waited = 0.0
        self._received = 0
        super().__init__(learner, config, env, **options)

    @classmethod
    def of(cls, agent: Any, choice: Any) -> ActorLearnerLoop:
        """The loop of an agent around the learner that was chosen.

        Raises:
            ValueError: There are several actors, and the environment cannot be made again.
        """
        config = agent.own_config
        recipe = agent.source.recipe(config.n_envs)
        if config.n_actors > 1 and recipe is None:
            raise ValueError(
                f"n_actors must be 1 where env_id is an environment without an id, got "
                f"{config.n_actors}: pass an id, or a function that makes it"
            )
        name = agent.env_id or "an environment without an id"
        return cls(
            choice.learner,
            config,
            agent.env,
            env_recipe=recipe,
            token=agent.given_secrets["token"],
            algorithm=agent.name,
            followers=getattr(agent, "followers", None),
            seeds=choice.learner.seeds,
            subject=f"{agent.config.n_actors} actors x {config.n_envs} x {name}",
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
        before = self.collector.timesteps
        unrolls = self.collector.collect(
            learner.weights(), learner.updates, on_step, self._is_asked_to_stop
        )
        if not self._count(before, is_whole=unrolls is not None):
            return None
        assert unrolls is not None
        return UnrollBatch.of([unroll.rollout for unroll in unrolls], learner.own)

    def iterate(self, run: Run) -> Metrics | None:
        """One update; None where the run was asked to stop, and no unroll comes."""
        self._is_asked_to_stop = lambda: run.stop_reason is not None
        return super().iterate(run)

    def progress_metrics(self) -> dict[str, float]:
        """Measures of the last episodes, and of the actors."""
        lags, stats = self.collector.lags or [0], self.fleet.stats()
        recent = sorted(self.collector.recent_lags) or [0]
        seconds = max(1e-9, time.perf_counter() - self._began)
        waited = self.collector.timings["collect"] - self._waited
        return {
            **super().progress_metrics(),
            "lag": fmean(lags),
            "lag_p95": float(recent[math.ceil(0.95 * len(recent)) - 1]),
            "lag_max": float(max(lags)),
            "dropped_unrolls": float(self.collector.dropped),
            "lost_unrolls": float(stats.lost),
            "actors_alive": float(stats.alive),
            "restarts": float(stats.restarts),
            "learner_idle": min(1.0, waited / seconds),
            "bytes_per_s": (stats.received_bytes - self._received) / seconds,
        }

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside, a run goes on; afterwards the environments stand still."""
        self._began, self._waited = time.perf_counter(), self.collector.timings["collect"]
        self._received = self.fleet.stats().received_bytes
        timeout = math.inf
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            timeout = GIVE_UP
            raise
        finally:
            self.collector.finish(timeout)

    def _check_collected(self) -> None:
        """Raise where a method was assigned to the learner that native actors do not call."""
        if self._acting_reason is None:
            self._check_not_assigned()

    def _make_collector(self, seeds: Seeds) -> FleetCollector:
        config = self.config
        fleet = make_fleet(
            config.actors,
            self._recipe(seeds),
            self.env,
            n_actors=config.n_actors,
            n_weights=self.learner.weights().size,
            max_in_flight=config.in_flight,
            in_step=config.deterministic,
            listening=self._listening(),
            followers=self._followers,
        )
        return FleetCollector(
            fleet,
            self.learner.action_map,
            n_envs=config.n_envs * config.n_actors,
            n_unrolls=config.n_unrolls,
            max_lag=config.max_lag,
            in_step=config.deterministic,
        )

    def _listening(self) -> Listening | None:
        config = self.config
        access = config.access(self._token)
        if config.actors not in ("grpc", "ray"):
            return None
        listening = Listening(config.address, access)
        return listening if config.actors == "ray" else listening.of_rank(self.ranks.rank)

    def _recipe(self, seeds: Seeds) -> ActorRecipe:
        config, learner, memory = self.config, self.learner, self.actor.state
        policy: Any = FollowerRecipe(learner, self.actor.columns, self._algorithm)
        if self._acting_reason is None:
            policy = PolicyRecipe(
                hidden=tuple(config.hidden_of("actor")),
                critic_hidden=tuple(config.hidden_of("critic")),
                activation=config.activation,
                threads=native_threads(config.threads, learner.weights().size * config.n_envs),
            )
        return ActorRecipe(
            env=self._env_recipe,
            policy=policy,
            n_steps=config.n_steps,
            gamma=config.gamma,
            seeds=(seeds.env, seeds.learning),
            memory=None if memory is None else tuple(memory.shape),
            step_timeout=config.step_timeout,
        )
