"""The loop of algorithms that learn from a fixed dataset."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave import envs
from sharpwave.buffers import ReplayBuffer, Transition
from sharpwave.buffers.offline_mixture import rows_of
from sharpwave.collect import EpisodeStats
from sharpwave.train.algorithm import Metrics
from sharpwave.train.callbacks import Callback, CallbackList, EvalCallback
from sharpwave.train.evaluation import EvaluationResult
from sharpwave.train.interval import positive
from sharpwave.train.loggers import LoggerCallback
from sharpwave.train.offline_data import (
    StateNormalizer,
    name_of,
    normalizer_of,
    normalizes,
    open_dataset,
    reward_form,
)
from sharpwave.train.offline_spaces import check_dataset, spaces_of
from sharpwave.train.options import AlgorithmConfig, resolve_config
from sharpwave.train.replay import ReplaySampler
from sharpwave.train.replay_learner import ReplayLearner
from sharpwave.train.schedules import ScheduleLike, value_at
from sharpwave.train.source import EnvSource

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(AlgorithmConfig):
    """Options of every offline algorithm."""

    seed: int = 42
    """Seed of weights, draws and noise."""
    total_timesteps: int = 100_000
    """Gradient steps of `train()` when it is given none."""
    batch_size: int = 256
    """Steps of a gradient step."""
    learning_rate: ScheduleLike = 3e-4
    """Step size of the optimisers; a schedule follows the progress of the run."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers; one number stands for two layers of that width."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation of the hidden layers."""
    normalize_obs: bool | None = None
    """Scale observations by their mean and deviation in the dataset. None does so where it can:
    where they are vectors, of a dataset of this library."""
    reward_scale: float | Literal["returns"] = 1.0
    """What rewards are multiplied by; "returns" lets the returns of the dataset span 1000."""
    reward_shift: float = 0.0
    """What is added to rewards then."""
    act_low: float | tuple[float, ...] | None = None
    """Lowest action, of all dimensions or of each; that of the environment when none is given, or
    of the dataset."""
    act_high: float | tuple[float, ...] | None = None
    """Highest action likewise. With one bound alone the other is its negative."""
    log_interval: int = 100
    """Gradient steps between two reports of metrics."""
    compile: bool = False
    """Compile the losses with torch.compile."""
    cuda_graph: bool = False
    """Replay gradient steps as CUDA graphs, on a CUDA device."""

    aliases: ClassVar[dict[str, str]] = {"n_gradient_steps": "total_timesteps"}

    def __post_init__(self) -> None:
        width: Any = self.hidden
        if isinstance(width, int) and not isinstance(width, bool):
            object.__setattr__(self, "hidden", (width, width))
        super().__post_init__()

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("batch_size", "log_interval", "hidden")
        self.require_range("learning_rate", 0)


class OfflineAlgorithm(ReplayLearner):
    """An agent that learns from what others lived through.

    A subclass gives `build_networks`, `gradient_step` and `act`. Steps are gradient steps, for
    `train`, callbacks, loggers and schedules alike. Batches are a function of the seed and of the
    number of the step, so that a run continues exactly after a checkpoint.

    Args:
        dataset: What to learn from: an `OfflineDatasetBuffer`, a replay buffer, an
            `OfflineMixture`, anything with `sample(batch_size, seed)` and a length; an
            `EpisodeBuffer`; a dict of columns; or where one lies: a folder of episodes or of a
            replay buffer, a file such as .hdf5 or .npz, `minari:ID`.
        obs_dim: Length of the observations; what the dataset says when not given.
        act_dim: Length of the actions, or the number of discrete ones, likewise.
        env: Where to evaluate: a Gymnasium id, an environment, or a function that makes one. Its
            spaces decide the bounds of actions.
        env_kwargs: Passed to the environment's constructor.
        eval_freq: Gradient steps between two evaluations in `env`; 0 for none.
        n_eval_episodes: Episodes of one evaluation.
        callbacks: Called during every `train`.
        logger: Where metrics go: a logger, or several.
        config: All options at once; single options given by name win over it.
        **overrides: Any field of `Config`.

    Raises:
        SharpwaveIOError: There is no dataset where one was said to be.
        TypeError: An option does not exist, or `dataset` is none.
        ValueError: An option has an impossible value, or does not fit the dataset.
    """

    Config: ClassVar[type[OfflineConfig]]
    config: OfflineConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "dataset": inspect.Parameter.empty,
        "obs_dim": None,
        "act_dim": None,
    }
    named_arguments: ClassVar[dict[str, Any]] = {
        "env": None,
        "env_kwargs": None,
        "eval_freq": 0,
        "n_eval_episodes": 20,
        "callbacks": None,
        "logger": None,
    }

    columns: ClassVar[tuple[str, ...]] = ("obs", "actions", "rewards", "next_obs", "terminated")
    """What it reads of the dataset."""

    def __init__(
        self,
        dataset: Any,
        obs_dim: int | None = None,
        act_dim: int | None = None,
        *,
        config: AlgorithmConfig | dict[str, Any] | None = None,
        env: Any = None,
        env_kwargs: dict[str, Any] | None = None,
        eval_freq: int = 0,
        n_eval_episodes: int = 20,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        **overrides: Any,
    ) -> None:
        if overrides.get("seed", 0) is None:
            del overrides["seed"]
        self._open(
            resolve_config(self.Config, config, overrides),
            env,
            env_kwargs,
            (eval_freq, n_eval_episodes),
            callbacks,
            logger,
        )
        self._dataset_name = name_of(dataset)
        self._dataset: Any = self.prepare(open_dataset(dataset))
        self.observation_space, self.action_space = spaces_of(
            self._dataset, self.config, self.env, obs_dim, act_dim, self.kind_of_actions()
        )
        self.normalizer = normalizer_of(self._dataset, self.config.normalize_obs)
        self._choose_backend()
        self.build()

    def _open(
        self,
        config: OfflineConfig,
        env: Any,
        env_kwargs: dict[str, Any] | None,
        evaluation: tuple[int, int],
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
    ) -> None:
        """All of construction that comes before the dataset."""
        source = None if env is None else EnvSource(env, env_kwargs)
        eval_freq, n_episodes = self._evaluation = evaluation
        if eval_freq and source is None:
            raise ValueError(f"eval_freq needs an env to evaluate in, got {eval_freq} and no env")
        own = [EvalCallback(eval_freq=eval_freq, n_eval_episodes=n_episodes)] if eval_freq else []
        super().__init__(config, source, [*own, *CallbackList(callbacks)], logger)
        self.env = None if source is None else source.make(source.n_envs or 1, "sync")
        self._episodes = EpisodeStats(1)

    # What a subclass may change

    def prepare(self, dataset: Any) -> Any:
        """The part of the dataset to learn from."""
        return dataset

    def kind_of_actions(self) -> str | None:
        """What it learns, "continuous" or "discrete"; None if environment or dataset decide."""
        return "continuous"

    # Construction

    def build(self) -> None:
        """Make networks and what draws their batches."""
        self._set_action_form()
        self._make_networks(compile=self.config.compile, cuda_graph=self.config.cuda_graph)
        self._sampler: ReplaySampler | None = None

    @property
    def network_options(self) -> dict[str, Any]:
        """What every network is made with."""
        config = self.config
        return {
            "hidden": config.hidden,
            "activation": config.activation,
            "generator": self.weights_generator,
        }

    @property
    def dataset(self) -> Any:
        """What is learnt from.

        Raises:
            ValueError: After `from_checkpoint` without one.
        """
        if self._dataset is None:
            if self._dataset_name is None:
                raise ValueError("dataset must be given to from_checkpoint to go on learning")
            self._dataset = self.prepare(open_dataset(self._dataset_name))
            check_dataset(self._dataset, self.observation_space, self.action_space)
        return self._dataset

    @property
    def sampler(self) -> ReplaySampler:
        """What draws batches of the dataset."""
        if self._sampler is None:
            moments = None
            if self.normalizer is not None and not normalizes(self.dataset):
                mean, std = self.normalizer.mean, self.normalizer.std
                moments = (mean, std)
                if self.native is None:
                    moments = self._tensor(mean), self._tensor(std)
            rows = rows_of(self.dataset)
            self._sampler = self.sampler_class(
                rows,
                self.config.batch_size,
                view=Transition(self.columns) if isinstance(rows, ReplayBuffer) else None,
                gamma=self.config.gamma,
                device=None if self.native is not None else self.device,
                obs_moments=moments,
                reward_form=reward_form(
                    self.dataset, self.config.reward_scale, self.config.reward_shift
                ),
                **self.action_form(),
            )
        return self._sampler

    # A run

    def train(
        self,
        n_gradient_steps: int | None = None,
        *,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> dict[str, float]:
        """Learn for a number of gradient steps.

        A second call goes on where the first ended, with schedules that span both. After
        `from_checkpoint`, a call without a number finishes the interrupted run.

        Args:
            n_gradient_steps: Steps to add; what was left of an interrupted run, or
                `config.total_timesteps`, when not given.
            callbacks: Called during this run, after the algorithm's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report. With it,
                SIGTERM and Ctrl-C save a checkpoint and end the run.

        Returns:
            Metrics, averaged over the gradient steps since the last report.

        Raises:
            EnvironmentFailed: An environment of an evaluation raised.
            FileExistsError: `run_dir` holds another run.
            NonFiniteError: Learning diverged.
            SharpwaveIOError: A checkpoint cannot be written.
            ValueError: `n_gradient_steps` is not a positive integer, or there is no dataset.
        """
        if n_gradient_steps is not None:
            n_gradient_steps = positive(n_gradient_steps, name="n_gradient_steps")
        _ = self.sampler  # what is wrong with the dataset shows before a run folder is made
        return super().train(n_gradient_steps, callbacks=callbacks, run_dir=run_dir)

    def iterate(self) -> Metrics | None:
        """Gradient steps until the next report of metrics."""
        began = time.perf_counter()
        end = min(self.timesteps + self.config.log_interval, self.target_timesteps)
        changing = self.has_schedules
        watched = self._hooks.overrides("on_step")
        sampler, first_seed = self.sampler, self._world_seed << 32
        measured: list[Any] = []
        self.follow_schedules(self.progress_remaining)
        while self.timesteps < end and self.stop_reason is None:
            if changing:
                self.follow_schedules(self.progress_remaining)
            drawn = sampler.draw(first_seed + self.timesteps)
            measured.append(self._learn_from(sampler, drawn)[0])
            self.timesteps += 1
            if watched:
                numbers = measured[-1].tolist()
                self._call_hook("on_step", **dict(zip(self.metrics, numbers, strict=True)))
        self.timings["update"] += time.perf_counter() - began
        return self.means(measured) if measured else None

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.config.batch_size

    @property
    def has_schedules(self) -> bool:
        """Whether `follow_schedules` changes something from step to step."""
        return callable(self.config.learning_rate)

    def follow_schedules(self, progress_remaining: float) -> None:
        """Set what follows the progress of the run."""
        rate = value_at(self.config.learning_rate, progress_remaining)
        for optimizer in self.optimizers.values():
            optimizer.set_lr(rate)

    @property
    def episodes(self) -> EpisodeStats:
        """None are lived through in training."""
        return self._episodes

    def episode_metrics(self) -> dict[str, float]:
        """Nothing: no episodes are lived through."""
        return {}

    @property
    def subject(self) -> str:
        """The size of the dataset."""
        return f"{len(self.dataset):,} steps of data"

    # At play and in checkpoints

    def evaluate(
        self,
        n_episodes: int = 20,
        *,
        env: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> EvaluationResult:
        """Play whole episodes.

        Args:
            n_episodes: How many.
            env: Where; in an environment like the one given to the constructor when not given.
            deterministic: Play the mode of the policy, not samples of it.
            seed: Seed of the environment; one that follows from the run's when not given, so that
                evaluations can be compared.

        Raises:
            ValueError: There is no environment, its spaces are not those of the dataset, or
                `n_episodes` is less than 1.
        """
        if env is None and self._source is not None and not self._source.can_make_another:
            env = self.env  # nothing else plays in it
        return super().evaluate(n_episodes, env=env, deterministic=deterministic, seed=seed)

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str], dataset: Any = None, **options: Any
    ) -> Self:
        """The algorithm that `save` wrote, ready to predict or to go on with `train()`.

        Args:
            path: The file.
            dataset: What to go on learning from; where it was given by its path or id, that one.
            **options: Constructor arguments that replace what was saved: `env`, `device`,
                `callbacks`.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It belongs to another algorithm, or does not fit `dataset`.
        """
        return cls._restore(path, {"dataset": dataset, **options})

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],  # noqa: ARG003 - everything is in the header
        header: dict[str, Any],
        config: AlgorithmConfig,
        arguments: dict[str, Any],
    ) -> Self:
        given = {"env": None, "env_kwargs": None, "callbacks": None, "logger": None, **arguments}
        if given["env"] is None and header["env"] is not None:
            given["env"] = header["env"]["id"]
            given["env_kwargs"] = given["env_kwargs"] or header["env"]["kwargs"]
        freq, n_episodes = header["evaluation"] if given["env"] is not None else (0, 20)
        evaluation = given.pop("eval_freq", freq), given.pop("n_eval_episodes", n_episodes)
        dataset = given.pop("dataset")

        algorithm = cls.__new__(cls)
        algorithm._open(config, evaluation=evaluation, **given)  # type: ignore[arg-type]
        algorithm.observation_space = envs.space_from_json(header["observation_space"])
        algorithm.action_space = envs.space_from_json(header["action_space"])
        algorithm._dataset_name = name_of(dataset) or header["dataset"]
        algorithm._dataset = None
        algorithm.normalizer = None
        if dataset is not None:
            algorithm._dataset = algorithm.prepare(open_dataset(dataset))
            check_dataset(algorithm._dataset, algorithm.observation_space, algorithm.action_space)
        algorithm._choose_backend()
        algorithm.build()
        return algorithm

    def _header(self) -> dict[str, Any]:
        return {
            **super()._header(),
            "dataset": self._dataset_name,
            "evaluation": list(self._evaluation),
        }

    def _whole_state(self) -> dict[str, Any]:
        moments = None
        if self.normalizer is not None:
            moments = {"mean": self.normalizer.mean, "std": self.normalizer.std}
        return {**super()._whole_state(), "normalizer": moments}

    def _load_whole_state(self, state: dict[str, Any]) -> None:
        super()._load_whole_state(state)
        if state["normalizer"] is not None:
            self.normalizer = StateNormalizer(**state["normalizer"])
        self._sampler = None
