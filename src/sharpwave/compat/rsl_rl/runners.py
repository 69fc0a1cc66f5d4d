"""rsl_rl's runners around agents of this library."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from sharpwave.algorithms.ppo import PPO
from sharpwave.compat.rsl_rl import files
from sharpwave.compat.rsl_rl.algorithm import Algorithm
from sharpwave.compat.rsl_rl.environments import RobotEnv, observation_sets
from sharpwave.compat.rsl_rl.learners import learner_for
from sharpwave.compat.rsl_rl.logs import Iteration, Logs
from sharpwave.compat.rsl_rl.policies import InferencePolicy, export_jit, export_onnx
from sharpwave.compat.rsl_rl.refusals import PAGE, absent, refuse
from sharpwave.compat.rsl_rl.settings import Settings, read_settings
from sharpwave.core.optional import is_installed
from sharpwave.runs.callbacks import Callback

__all__ = ["DistillationRunner", "OnPolicyRunner"]


class OnPolicyRunner:
    """`sharpwave.PPO` with the constructor and the methods of rsl_rl's runner.

    Args:
        env: An environment of rsl_rl's form ([VecEnv](sharpwave.compat.rsl_rl.env.VecEnv)).
        train_cfg: A configuration of rsl_rl 2, 3, 4 or 5.
        log_dir: Folder of logs and checkpoints; None for none.
        device: Device of the networks.

    Attributes:
        agent: The agent of this library, whose options, callbacks and files are there too.
        alg: Its learner by rsl_rl's names.
        current_learning_iteration: The last iteration.

    Raises:
        ValueError: An entry of the configuration is unknown, or has no counterpart here.
    """

    def __init__(
        self,
        env: Any,
        train_cfg: Mapping[str, Any],
        log_dir: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.env = env
        self.cfg = train_cfg
        self.device = device
        self.log_dir = log_dir
        settings = read_settings(train_cfg)
        self._check(settings)
        self._robots = RobotEnv(env, device)
        if settings.form == 3 and not self._robots.is_named:
            settings = settings.until_2()
        self.settings = settings
        self.logger = Logs(log_dir, settings)
        wanted = tuple(settings.models)
        if settings.algorithm["rnd_cfg"] is not None:
            wanted = (*wanted, "rnd_state")
        sets = observation_sets(self._robots, settings.obs_groups, wanted)
        space = self._robots.single_observation_space
        by_kernels = torch.device(device).type == "cuda" and is_installed("triton")
        self.agent = PPO(
            self._robots,
            device=str(device),
            seed=settings.seed,
            learner=learner_for(settings, sets, env, space, by_kernels=by_kernels),
            **settings.ppo_options(),
        )
        self.alg = Algorithm(self.agent, settings)
        self.current_learning_iteration = 0

    def _check(self, settings: Settings) -> None:
        """Raise where the configuration is of another runner."""

    def __getattr__(self, name: str) -> Any:
        raise absent(type(self).__name__, name, dir(self))

    @property
    def writer(self) -> Any:
        """The writer of scalars, once training has begun."""
        return self.logger.writer

    def learn(self, num_learning_iterations: int, init_at_random_ep_len: bool = False) -> None:
        """Learn for a number of iterations: a rollout and an update each.

        Args:
            num_learning_iterations: Iterations to add.
            init_at_random_ep_len: Let environments think that their episodes have lasted for a
                while, so that they do not all end at once.
        """
        env, agent = self.env, self.agent
        if self.settings.is_distillation and not self.alg.teacher_loaded:
            raise ValueError(f"a teacher must be loaded before it can teach: see {PAGE}")
        if init_at_random_ep_len:
            lengths = env.episode_length_buf
            env.episode_length_buf = torch.randint_like(lengths, high=int(env.max_episode_length))
        # Somebody else may have stepped the environments since.
        collector = agent.loop.collector
        collector.load_state_dict(collector.state_dict(), in_flight=False)
        self._robots.told.clear()
        self.train_mode()
        first, leads = self.current_learning_iteration, agent.ranks.leads
        if leads:  # of several processes
            self.logger.begin()
        steps = num_learning_iterations * agent.config.n_steps * agent.config.n_envs
        agent.train(steps, callbacks=_Iterations(self, num_learning_iterations))
        self.current_learning_iteration = first + num_learning_iterations - 1
        if self.log_dir is not None and leads:
            self.save(self._path(self.current_learning_iteration))
            self.logger.end()

    def _path(self, iteration: int) -> str:
        return str(Path(self.log_dir or ".") / f"model_{iteration}.pt")

    def save(self, path: str | os.PathLike[str], infos: Any = None) -> None:
        """Write a checkpoint that rsl_rl reads, too.

        Args:
            path: The file.
            infos: Anything of tensors, numbers and names, which `load` returns.
        """
        files.write(path, self.alg.saved(self.current_learning_iteration, infos))
        if hasattr(self.writer, "save_model"):
            self.writer.save_model(str(path), self.current_learning_iteration)

    def load(
        self,
        path: str | os.PathLike[str],
        load_optimizer: bool | Mapping[str, bool] | None = True,
        strict: bool = True,
        map_location: str | None = None,  # noqa: ARG002 - tensors go where the networks are
        *,
        load_cfg: Mapping[str, bool] | None = None,
    ) -> Any:
        """Go on from a checkpoint of this package or of rsl_rl, of any version.

        Args:
            path: The file. Only tensors, numbers and names are read of it; no code is run.
            load_optimizer: Go on with its moments and its learning rate, too; or what to load, by
                name, as rsl_rl 4 and 5 have it in this place.
            strict: Must be True.
            map_location: Without effect.
            load_cfg: What to load, by name; None for all.

        Returns:
            The `infos` that were given to `save`.

        Raises:
            ValueError: It holds other networks than the configuration asks for.
        """
        if not strict:
            raise refuse("strict", strict, "True")
        saved = files.read(path)
        wanted = load_optimizer if isinstance(load_optimizer, Mapping) else load_cfg
        if load_optimizer is False:
            saved.optimizer = None
        if self.alg.load(saved, wanted):
            self.current_learning_iteration = saved.iteration
        return saved.infos

    def get_inference_policy(self, device: str | None = None) -> InferencePolicy:
        """The deterministic policy, a module that takes observations of the environment.

        Args:
            device: Where it is to be; a copy where the networks are elsewhere.
        """
        self.eval_mode()
        policy = self.alg.policy
        if device is None or torch.empty(0, device=device).device == self.agent.device:
            return policy
        return deepcopy(policy).to(device)

    def export_policy_to_jit(self, path: str, filename: str = "policy.pt") -> None:
        """Write the policy with its normalizer as a file of TorchScript into a folder."""
        export_jit(self.alg.policy, path, filename)

    def export_policy_to_onnx(
        self, path: str, filename: str = "policy.onnx", verbose: bool = False
    ) -> None:
        """Write the policy with its normalizer as a file of ONNX into a folder."""
        export_onnx(self.alg.policy, path, filename, verbose=verbose)

    def add_git_repo_to_log(self, repo_file_path: str) -> None:
        """Write the state of the git repository of a file into the folder of logs."""
        self.logger.repositories.append(repo_file_path)

    def train_mode(self) -> None:
        """Let modules know that they are trained."""
        self.alg.train_mode()

    def eval_mode(self) -> None:
        """Let modules know that they are played."""
        self.alg.eval_mode()


class DistillationRunner(OnPolicyRunner):
    """A student that learns from a teacher, with the methods of rsl_rl's runner.

    The arguments are those of `OnPolicyRunner`. `load` of what reinforcement trained gives the
    teacher its weights.
    """

    def _check(self, settings: Settings) -> None:
        if not settings.is_distillation:
            raise refuse("algorithm.class_name", "PPO", "'Distillation'")


class _Iterations(Callback):
    """Logs each iteration, and saves some.

    Args:
        runner: The runner.
        number: Iterations to come.
    """

    def __init__(self, runner: OnPolicyRunner, number: int) -> None:
        self._runner = runner
        self._first = self._next = runner.current_learning_iteration
        self._end = self._first + number

    def on_training_start(self, **_: Any) -> None:
        """Start the clocks."""
        self._clocks = time.perf_counter(), self._collected()

    def _collected(self) -> float:
        return float(self._runner.agent.timings.get("collect", 0.0))

    def on_train_batch(self, *, algo: Any, **metrics: Any) -> None:
        """Log an iteration."""
        runner = self._runner
        before, self._clocks = self._clocks, (time.perf_counter(), self._collected())
        seconds, collected = (now - then for now, then in zip(self._clocks, before, strict=True))
        iteration, self._next = self._next, self._next + 1
        runner.current_learning_iteration = iteration
        if runner.log_dir is None:
            runner._robots.told.clear()
            return
        told, runner._robots.told = runner._robots.told, []
        runner.logger.log(
            Iteration(
                iteration,
                metrics,
                std=float(algo.policy.spread.mean()),
                collected=collected,
                learned=max(seconds - collected, 1e-9),
                steps=algo.config.n_steps * algo.config.n_envs,
                told=told,
            ),
            self._first,
            self._end,
        )
        if iteration % runner.settings.save_interval == 0:
            runner.save(runner._path(iteration))
