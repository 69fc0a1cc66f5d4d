"""Evaluations in processes that Ray places, starts and restarts, while training goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sharpwave.distributed import EnvRecipe
from sharpwave.distributed.ray_cluster import RayCluster
from sharpwave.envs import VecNormalize, check_same_form
from sharpwave.learners.actor import Actor, RolloutActor
from sharpwave.learners.choose import choose
from sharpwave.loops.source import without_normalizer
from sharpwave.runs.evaluation import EvaluationResult, evaluate
from sharpwave.runs.interval import positive
from sharpwave.storage.checkpoints.tensors import as_arrays

__all__ = ["RayEvaluator"]

OF_THE_LEARNER: dict[str, Any] = {
    "device": "cpu",
    "compile": False,
    "cuda_graph": False,
    "actors": "threads",
    "address": None,
    "tls": (),
    "worker_addresses": None,
}
"""Options that say nothing to whoever plays, and what they are there."""


class RayEvaluator:
    """Plays episodes with the policy of an agent, in processes of Ray.

    What travels is what the learner is made of, and its weights as they are when it is asked.

    Args:
        agent: The agent whose policy plays.
        n_workers: Processes, and so the evaluations that go on at a time.
        env: Environment to play in: an id, or a factory; None for that of training.
        cluster: The address of a Ray cluster, or "auto"; None starts a Ray on this machine.
        cpus: Of Ray's, for each process.

    Raises:
        ConnectionError: There is no such cluster.
        PermissionError: The cluster takes everybody.
        TypeError: The agent does not play episodes.
        ValueError: `env` is not given, and the environment of training cannot be made again.
    """

    def __init__(
        self,
        agent: Any,
        n_workers: int = 1,
        *,
        env: Any = None,
        cluster: str | None = None,
        cpus: float = 1.0,
    ) -> None:
        self._n_workers = positive(n_workers, name="n_workers")
        self._agent, self._env = agent, _env_of(agent, env)
        self._cluster = RayCluster(cluster)
        self._free = self._cluster.place(_RayPlayer, n_workers, cpus)
        self._running: dict[Any, tuple[int, Any]] = {}
        self._ended: list[tuple[int, EvaluationResult]] = []
        self._errors: list[Exception] = []

    @property
    def is_free(self) -> bool:
        """True if a process is idle."""
        return bool(self._free)

    @property
    def n_running(self) -> int:
        """Evaluations that go on."""
        return len(self._running)

    def submit(
        self, n_episodes: int = 20, *, deterministic: bool = True, seed: int | None = None
    ) -> None:
        """Begin an evaluation of the policy as it is now; `finished` gives its result.

        Args:
            n_episodes: Number of episodes.
            deterministic: Play the mode of the policy, not samples of it.
            seed: Of the environments; that of `Agent.evaluate` when not given.

        Raises:
            RuntimeError: All processes have something to do.
        """
        if not self._free:
            raise RuntimeError(f"all {self._n_workers} processes are evaluating")
        agent, normalizer = self._agent, self._agent.normalizer
        if seed is None:
            seed = int(np.random.SeedSequence((agent.seed, 1)).generate_state(1)[0] >> 1)
        asked = _Asked(
            positive(n_episodes, name="n_episodes"),
            deterministic,
            seed,
            as_arrays(agent.learner.acting_state()),
            None if normalizer is None else normalizer.state_dict(),
        )
        worker = self._free.pop()
        handle = worker.play.remote(_described(agent, self._env), asked)
        self._running[handle] = agent.timesteps, worker

    def finished(self, timeout: float | None = 0.0) -> list[tuple[int, EvaluationResult]]:
        """Evaluations that have ended, each with the steps at which it was asked for.

        Args:
            timeout: Seconds to wait for all that go on; None for as long as it takes.

        Raises:
            Exception: What an evaluation raised; the next call has the results of others that have
                ended with it.
        """
        handles, ray = list(self._running), self._cluster.ray
        ended = []
        if handles:
            ended, _ = ray.wait(handles, num_returns=len(handles), timeout=timeout)
        for handle in ended:
            step, worker = self._running.pop(handle)
            self._free.append(worker)
            try:
                self._ended.append((step, ray.get(handle)))
            except Exception as error:
                self._errors.append(error)
        if self._errors:
            raise self._errors.pop(0)
        found, self._ended = sorted(self._ended, key=lambda one: one[0]), []
        return found

    def close(self) -> None:
        """End the processes, and the Ray that was started for them."""
        self._running.clear()
        self._cluster.leave()

    def __enter__(self) -> RayEvaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Described(NamedTuple):
    """Description of a learner and its environments, to make them in another process."""

    facade: Any
    kind: Any
    config: Any
    spaces: tuple[Any, Any]
    seeds: Any
    given: dict[str, Any]
    env: EnvRecipe
    played: tuple[Any, Any]
    """Spaces of the environments, before observations are normalized."""
    specs: dict[str, Any]
    """Gymnasium specs that the learner's process has registered, by the id of the environment."""


class _Asked(NamedTuple):
    """An evaluation, with the weights and statistics to play with."""

    n_episodes: int
    deterministic: bool
    seed: int
    weights: dict[str, Any]
    statistics: dict[str, Any] | None


class _RayPlayer:
    """Plays in a process of Ray."""

    def play(self, described: _Described, asked: _Asked) -> EvaluationResult:
        """Play some episodes."""
        for name, spec in described.specs.items():
            gym.registry.setdefault(name, spec)
        learner: Any = choose(
            described.facade,
            described.config,
            *described.spaces,
            learner=described.kind,
            seeds=described.seeds,
            given=described.given,
        ).learner
        learner.load_acting_state(asked.weights)
        env = replace(described.env, n_envs=min(asked.n_episodes, 8)).make()
        try:
            check_same_form(env, *described.played)
            return evaluate(
                _player(learner, env, described, asked), env, asked.n_episodes, asked.seed
            )
        finally:
            env.close()


def _player(learner: Any, env: Any, described: _Described, asked: _Asked) -> Actor:
    normalizer = None
    if asked.statistics is not None:
        config = described.config
        normalizer = VecNormalize(env, norm_obs=config.normalize_obs is True, gamma=config.gamma)
        normalizer.load_state_dict(asked.statistics)
    kind = RolloutActor if hasattr(learner, "begin_rollout") else Actor
    player = kind(
        learner,
        env.num_envs,
        explore=not asked.deterministic and learner.is_random,
        normalizer=normalizer,
        generator=learner.make_generator(described.seeds.playing),
    )
    if isinstance(player, RolloutActor) and not asked.deterministic:
        player.begin_rollout()
    return player


def _described(agent: Any, env: EnvRecipe) -> _Described:
    config = agent.config
    changed = {name: x for name, x in OF_THE_LEARNER.items() if hasattr(config, name)}
    played = without_normalizer(agent.loop.env)
    spec = gym.registry.get(env.env.rpartition(":")[2]) if isinstance(env.env, str) else None
    return _Described(
        type(agent),
        agent._given_learner,
        config.replace(**changed, backend=agent.backend),
        (agent.observation_space, agent.action_space),
        agent.learner.seeds,
        agent.given_networks,
        env,
        (played.single_observation_space, played.single_action_space),
        {} if spec is None else {spec.id: spec},
    )


def _env_of(agent: Any, env: Any) -> EnvRecipe:
    """Recipe of the environments to play in."""
    if getattr(agent, "source", None) is None or not hasattr(agent.learner, "acting_state"):
        raise TypeError(f"agent must be one that plays episodes, got {type(agent).__name__}")
    if env is not None:
        return EnvRecipe(env=env, n_envs=1)
    found: EnvRecipe | None = agent.source.own_recipe(1)
    if found is None:
        raise ValueError(
            "env must be given: the training environment is an object without an id, "
            "so a separate one cannot be made for evaluation"
        )
    # Processes of their own are not worth their start for a few episodes.
    return replace(found, mode="auto" if found.mode == "auto" else "sync")
