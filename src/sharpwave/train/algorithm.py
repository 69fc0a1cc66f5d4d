"""What every algorithm has: construction, the run, prediction, evaluation, checkpoints."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sharpwave import envs
from sharpwave.collect import EpisodeStats
from sharpwave.lazy import torch
from sharpwave.train.callbacks import Callback, CallbackList
from sharpwave.train.callbacks.base import add_note
from sharpwave.train.checkpoint import read_checkpoint, write_checkpoint
from sharpwave.train.convergence import check_convergence
from sharpwave.train.evaluation import EvaluationResult, Player, evaluate
from sharpwave.train.interval import positive
from sharpwave.train.loggers import LoggerCallback, LoggerList
from sharpwave.train.options import AlgorithmConfig, constructor_signature, resolve_config
from sharpwave.train.signals import stop_on_signal
from sharpwave.train.source import EnvSource, find_normalizer, without_normalizer
from sharpwave.train.threads import torch_threads

if TYPE_CHECKING:
    from typing_extensions import Self

Metrics = dict[str, "torch.Tensor"]
"""What an update measured: tensors, which become numbers only when they are logged."""


class Algorithm(ABC):
    """An agent and how it learns.

    A subclass gives `Config`, `build` (networks and optimisers), `iterate` (collect, then update)
    and `player` (the policy at play); loops, prediction, evaluation, seeding and checkpoints are
    here, once.

    Args:
        env_id: A Gymnasium id, an environment, a function that makes one, or a vector environment.
        n_envs: Number of environments; what `config` says when not given, like every option below.
        seed: Seed of weights, actions and environments.
        policy: A network in place of the algorithm's own.
        logger: Where metrics go: a logger, or several.
        callbacks: Called during every `train`.
        config: All options at once; single options given by name win over it.
        env_kwargs: Passed to the environment's constructor.
        **overrides: Any field of `Config`.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message).
        ValueError: An option has an impossible value.
    """

    name: ClassVar[str]
    Config: ClassVar[type[AlgorithmConfig]]
    config: AlgorithmConfig
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "Config"):
            cls.__signature__ = constructor_signature(cls.Config)

    def __init__(
        self,
        env_id: Any,
        n_envs: int | None = None,
        seed: int | None = None,
        policy: Any = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        *,
        config: AlgorithmConfig | dict[str, Any] | None = None,
        env_kwargs: dict[str, Any] | None = None,
        **overrides: Any,
    ) -> None:
        given = {"n_envs": n_envs, "seed": seed}
        overrides.update({name: value for name, value in given.items() if value is not None})
        self._source = EnvSource(env_id, env_kwargs)
        if self._source.n_envs is not None:
            overrides.setdefault("n_envs", self._source.n_envs)
        self.config = resolve_config(self.Config, config, overrides)
        self.callbacks = list(CallbackList(callbacks))
        self.loggers = LoggerList(logger)
        self.policy = policy
        self._custom_policy = policy is not None

        self.timesteps = 0
        self.target_timesteps = 0
        self.updates = 0
        self.stop_reason: str | None = None
        self._hooks = CallbackList()
        self._callback_states: dict[str, Any] = {}
        self._env_state: dict[str, Any] | None = None

        self.env = self._make_env()
        self.observation_space = self.env.single_observation_space
        self.action_space = self.env.single_action_space
        self.normalizer = find_normalizer(self.env)
        self.timings: dict[str, float] = {"update": 0.0, "callbacks": 0.0}

        weights, env_seed, noise = np.random.SeedSequence(self.seed).spawn(3)
        self.weights_generator = np.random.Generator(np.random.Philox(weights))
        self.env_seed = int(env_seed.generate_state(1)[0] >> 1)
        self._noise_seed = int(noise.generate_state(1, np.uint64)[0] >> 1)
        self.build()

    # What a subclass gives

    @abstractmethod
    def build(self) -> None:
        """Make networks, optimisers and what collects experience."""

    @abstractmethod
    def iterate(self) -> Metrics | None:
        """Collect experience and learn from it, once; None if the run was stopped meanwhile."""

    @abstractmethod
    def player(self, n_envs: int, deterministic: bool) -> Player:
        """The policy, ready to play `n_envs` environments from their start."""

    @property
    @abstractmethod
    def episodes(self) -> EpisodeStats:
        """Returns and lengths of the episodes finished in training."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: networks, optimisers, generators, collection."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""

    # A run

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config.seed

    @property
    def env_id(self) -> str | None:
        """Gymnasium id of the environment, if it has one."""
        return self._source.env_id

    @property
    def progress_remaining(self) -> float:
        """From 1 at the start of the run to 0 at its end; schedules follow it."""
        if not self.target_timesteps:
            return 1.0
        return max(0.0, 1.0 - self.timesteps / self.target_timesteps)

    def train(
        self,
        total_timesteps: int | None = None,
        *,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> dict[str, float]:
        """Learn for a number of environment steps, counted over all environments.

        A second call goes on where the first ended, with schedules that span both. After
        `from_checkpoint`, a call without a number finishes the interrupted run.

        Args:
            total_timesteps: Steps to add; what was left of an interrupted run, or
                `config.total_timesteps`, when not given.
            callbacks: Called during this run, after the algorithm's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report. With it,
                SIGTERM and Ctrl-C save a checkpoint and end the run.

        Returns:
            Metrics of the last update, with `mean_reward`, the mean return of the last 100 finished
            episodes.

        Raises:
            EnvironmentFailed: An environment raised.
            FileExistsError: `run_dir` holds another run.
            NonFiniteError: An environment returned NaN or inf, or learning diverged.
            SharpwaveIOError: A checkpoint cannot be written.
            ValueError: `total_timesteps` is not a positive integer.
        """
        self._plan(total_timesteps)
        extra = [] if run_dir is None else [self._recorder(run_dir)]
        self._hooks = CallbackList([*self.callbacks, *CallbackList(callbacks), *extra])
        self._hooks.load_state_dict(self._callback_states)
        self._callback_states = {}
        self.stop_reason = None
        metrics: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            if run_dir is not None:
                stack.enter_context(stop_on_signal(self.request_stop))
            stack.enter_context(torch_threads(self.config.threads, self.policy))
            stack.callback(self.loggers.close)
            self.loggers.truncate_after(self.timesteps)
            self.loggers.log_config({**self.config.to_dict(), "env_id": self.env_id})
            try:
                self._hooks.on_training_start(
                    algo=self, step=self.timesteps, total_timesteps=self.target_timesteps
                )
                metrics = self._run()
            except BaseException as error:
                # What ended the run is what the caller must see, whatever else fails after it.
                try:
                    self._hooks.on_training_end(
                        algo=self, step=self.timesteps, metrics=metrics, error=error
                    )
                except Exception as another:
                    add_note(error, f"the end of the run failed too: {another!r}")
                raise
            self._hooks.on_training_end(algo=self, step=self.timesteps, metrics=metrics, error=None)
        return metrics

    def request_stop(self, reason: str) -> None:
        """Ask the run to end at its next update boundary."""
        self.stop_reason = self.stop_reason or reason

    def report_evaluation(self, result: EvaluationResult) -> None:
        """Tell callbacks and loggers of an evaluation."""
        if not self._hooks.on_eval(algo=self, step=self.timesteps, result=result):
            self.request_stop(self._hooks.stop_reason or "on_eval")
        metrics = {
            "eval_mean_return": result.mean,
            "eval_std_return": result.std,
            "eval_mean_length": result.mean_length,
        }
        self.loggers.on_eval(self.timesteps, metrics)

    def _plan(self, total_timesteps: int | None) -> None:
        if total_timesteps is None:
            if self.timesteps >= self.target_timesteps:
                self.target_timesteps = self.timesteps + self.config.total_timesteps
        else:
            checked = self.config.replace(total_timesteps=total_timesteps)
            self.target_timesteps = self.timesteps + checked.total_timesteps

    def _run(self) -> dict[str, float]:
        began, first_step = time.perf_counter(), self.timesteps
        metrics: dict[str, float] = {}
        while self.timesteps < self.target_timesteps and self.stop_reason is None:
            measured = self.iterate()
            if measured is None:
                break
            self.updates += 1
            tensors = [value.detach() for value in measured.values()]
            values = torch.stack(tensors).tolist() if tensors else []
            learning = dict(zip(measured, values, strict=True))
            check_convergence(learning, self.timesteps)
            seconds = time.perf_counter() - began
            metrics = {
                **learning,
                "mean_reward": self.episodes.mean_return,
                "mean_length": self.episodes.mean_length,
                "episodes": float(self.episodes.count),
                "timesteps": float(self.timesteps),
                "updates": float(self.updates),
                "sps": (self.timesteps - first_step) / seconds,
            }
            self.loggers.on_train_step(self.timesteps, metrics)
            self._call_hook("on_train_batch", **metrics)
            self.timings["callbacks"] += time.perf_counter() - began - seconds
        return metrics

    def _call_hook(self, name: str, **kwargs: Any) -> bool:
        """Call a hook of all callbacks; False if one of them stops the run."""
        if not self._hooks.overrides(name):
            return True
        go_on = bool(getattr(self._hooks, name)(algo=self, step=self.timesteps, **kwargs))
        if not go_on:
            self.request_stop(self._hooks.stop_reason or name)
        return go_on

    def _recorder(self, run_dir: str | os.PathLike[str]) -> Callback:
        from sharpwave.train.recorder import RunRecorder

        return RunRecorder(run_dir)

    # At play

    def predict(self, obs: Any, deterministic: bool = True, *, action_masks: Any = None) -> Any:
        """The action for one observation, or the actions for a batch.

        A recurrent policy starts from its initial state; `player` plays whole episodes.

        Args:
            obs: An observation as the environment gives it, or a batch of them.
            deterministic: The mode of the policy; otherwise a sample.
            action_masks: Actions that are allowed, [n] or [B, n].

        Returns:
            For one observation an `int` (Discrete actions) or an array; for a batch an array.
            Always inside the action space.

        Raises:
            ValueError: The shape is not that of an observation or a batch.
        """
        batch, n, single = envs.as_batch(self.observation_space, obs)
        masks = None
        if action_masks is not None:
            masks = np.asarray(action_masks, np.bool_).reshape(n, -1)
        actions = self.player(n, deterministic).play(batch, np.ones(n, np.bool_), masks)
        if not single:
            return actions
        whole = np.ndim(actions) == 1 and actions.dtype.kind in "iu"
        return int(actions[0]) if whole else np.asarray(actions[0])

    def evaluate(
        self,
        n_episodes: int = 20,
        *,
        env: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> EvaluationResult:
        """Play whole episodes in a separate environment.

        Args:
            n_episodes: How many.
            env: Where; the training environment's kind when not given.
            deterministic: Play the mode of the policy, not samples of it.
            seed: Seed of the environment; one that follows from the run's when not given, so that
                evaluations can be compared.

        Raises:
            ValueError: `env` is not given and the training environment cannot be made again, its
                spaces are not those of training, or `n_episodes` is less than 1.
        """
        n_episodes = positive(n_episodes, name="n_episodes")
        own = env is None or not hasattr(env, "num_envs")
        if env is None:
            played = self.make_env(min(n_episodes, 8))
        else:
            played = envs.make_vec_env(env, mode="sync") if own else without_normalizer(env)
        if seed is None:
            seed = int(np.random.SeedSequence((self.seed, 1)).generate_state(1)[0] >> 1)
        try:
            envs.check_same_form(played, without_normalizer(self.env))
            return evaluate(self.player(played.num_envs, deterministic), played, n_episodes, seed)
        finally:
            if own and (isinstance(env, type) or not hasattr(env, "step")):
                played.close()

    def make_env(self, n_envs: int = 1, **env_kwargs: Any) -> Any:
        """A separate vector environment of the training environment's kind.

        Args:
            n_envs: How many environments.
            **env_kwargs: For its constructor, such as `render_mode="rgb_array"`.

        Raises:
            ValueError: The training environment was given as an object that has no id.
        """
        return self._source.make_another(n_envs, **env_kwargs)

    # Checkpoints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: everything that continuing needs.

        The file is replaced at once or not at all. Saved between two updates, a run continues bit
        for bit where its environments offer their state; otherwise all but the episodes in flight
        continues.

        Raises:
            SharpwaveIOError: It cannot be written; what was at `path` is still there.
        """
        header = {
            "algorithm": self.name,
            "config": self.config.to_dict(),
            "env": self._source.to_json(),
            "observation_space": envs.space_to_json(self.observation_space),
            "action_space": envs.space_to_json(self.action_space),
            "custom_policy": self._custom_policy,
        }
        write_checkpoint(path, header, self._whole_state())

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str], env_id: Any = None, **options: Any
    ) -> Self:
        """The algorithm that `save` wrote, ready to predict or to go on with `train()`.

        Args:
            path: The file.
            env_id: The environment; the one in the checkpoint when not given.
            **options: Constructor arguments that replace what was saved: `device`, `callbacks`,
                `policy` for a network of your own. With another `n_envs` new episodes begin.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It belongs to another algorithm, or needs `env_id` or `policy`.
        """
        header, state = read_checkpoint(path)
        if header["algorithm"] != cls.name:
            raise ValueError(
                f"{path} holds {header['algorithm']!r}, not {cls.name!r}: load it with that class"
            )
        if env_id is None:
            if header["env"] is None:
                raise ValueError(
                    f"env_id must be given: {path} was trained in an environment without an id"
                )
            env_id = header["env"]["id"]
            options.setdefault("env_kwargs", header["env"]["kwargs"])
        if header["custom_policy"] and options.get("policy") is None:
            raise ValueError(f"policy must be given: {path} was trained with a custom network")
        config = cls.Config.from_dict(
            {**header["config"], **{k: v for k, v in options.items() if k in header["config"]}}
        )
        options = {k: v for k, v in options.items() if k not in header["config"]}
        algorithm = cls(env_id, config=config, **options)
        for name in ("observation_space", "action_space"):
            space, saved = getattr(algorithm, name), envs.space_from_json(header[name])
            if saved != space:
                wanted = f"{name.replace('_', ' ')} of the checkpoint, {saved}"
                raise ValueError(f"env_id must have the {wanted}, got {space}")
        same_number = header["config"]["n_envs"] == config.n_envs
        algorithm._load_whole_state(state, env_states=same_number)
        return algorithm

    @classmethod
    def preset(cls, env_id: str, **overrides: Any) -> Self:
        """This algorithm with settings that are known to work for an environment.

        Raises:
            ValueError: There is no preset for it.
        """
        from sharpwave.algorithms.presets import preset

        return cls(env_id, **{**preset(cls.name, env_id), **overrides})

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def _whole_state(self) -> dict[str, Any]:
        return {
            "timesteps": self.timesteps,
            "target_timesteps": self.target_timesteps,
            "updates": self.updates,
            "timings": dict(self.timings),
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "callbacks": {**self._callback_states, **self._hooks.state_dict()},
            "env": envs.environment_state(self.env) if self.timesteps else None,  # none before
            "env_random": envs.random_state(self.env) if self.timesteps else None,  # the first step
            "learner": self.state_dict(),
        }

    def _load_whole_state(self, state: dict[str, Any], *, env_states: bool = True) -> None:
        """Continue from `_whole_state`; without `env_states`, with new episodes."""
        self.timesteps = int(state["timesteps"])
        self.target_timesteps = int(state["target_timesteps"])
        self.updates = int(state["updates"])
        self.timings.update(state["timings"])
        self._callback_states = state["callbacks"]
        self._env_state = state["env"] if env_states else None
        if self.normalizer is not None and state["normalizer"] is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        if self._env_state is not None:
            envs.restore_environment_state(self.env, self._env_state)
        elif env_states and state["env_random"] is not None:
            envs.restore_random_state(self.env, state["env_random"])
        self.load_state_dict(state["learner"])

    @property
    def _environments_restored(self) -> bool:
        """Whether the environments stand in the episodes of the checkpoint."""
        return self._env_state is not None

    # Construction

    def _make_env(self) -> Any:
        env = self._source.make(self.config.n_envs, self.config.env_mode)
        envs.check_spaces(env)
        config = self.config
        if config.normalize_obs or config.normalize_rewards:
            env = envs.VecNormalize(
                env,
                norm_obs=config.normalize_obs,
                norm_reward=config.normalize_rewards,
                gamma=config.gamma,
            )
        return env
