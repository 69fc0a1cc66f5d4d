"""Offline agents, which learn from a dataset of transitions without an environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave import envs
from sharpwave.agents import exported, play
from sharpwave.agents.agent import Agent
from sharpwave.config.offline import OfflineConfig
from sharpwave.config.options import AlgorithmConfig, RunConfig, resolve_config
from sharpwave.learners import Learner as AnyLearner
from sharpwave.learners import Seeds
from sharpwave.learners.choose import choose
from sharpwave.loops.offline import OfflineLoop
from sharpwave.loops.offline_data import StateNormalizer, name_of, normalizer_of, open_dataset
from sharpwave.loops.offline_spaces import check_dataset, spaces_of
from sharpwave.loops.source import EnvSource, saved_env
from sharpwave.runs.callbacks import Callback, CallbackList, EvalCallback
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.interval import positive
from sharpwave.runs.loggers import LoggerCallback
from sharpwave.storage.files import array_of, reading

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OfflineAgent"]


class OfflineAgent(Agent):
    """An offline agent: it learns from a dataset of transitions without an environment.

    Steps are gradient steps, for `train`, callbacks, loggers and schedules alike.

    Args:
        dataset: The dataset to learn from: an `OfflineDatasetBuffer`, a replay buffer, an
            `OfflineMixture`, anything with `sample(batch_size, seed)` and a length; an
            `EpisodeBuffer`; a dict of columns; or where one lies: a folder of episodes or of a
            replay buffer, a file such as .hdf5 or .npz, `minari:ID`.
        obs_dim: Length of the observations; what the dataset says when not given.
        act_dim: Length of the actions, or the number of discrete ones, likewise.
        env: Environment to evaluate in: a Gymnasium id, an environment, or a function that makes
            one. Its spaces decide the bounds of actions.
        env_kwargs: Passed to the environment's constructor.
        eval_freq: Gradient steps between two evaluations in `env`; 0 for none.
        n_eval_episodes: Episodes of one evaluation.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.
        learner: A class derived from the algorithm's learner, in place of it.
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
        "learner": None,
    }
    columns: ClassVar[tuple[str, ...]] = ("obs", "actions", "rewards", "next_obs", "terminated")
    """Columns of the dataset that it reads."""

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
        learner: type[AnyLearner] | None = None,
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
            learner,
        )
        self._dataset_name = name_of(dataset)
        self._dataset: Any = self.prepare(open_dataset(dataset))
        self.observation_space, self.action_space = spaces_of(
            self._dataset, self.config, self.env, obs_dim, act_dim, self.kind_of_actions()
        )
        self.normalizer = normalizer_of(self._dataset, self.config.normalize_obs)
        self.build()

    def _open(
        self,
        config: OfflineConfig,
        env: Any,
        env_kwargs: dict[str, Any] | None,
        evaluation: tuple[int, int],
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
        learner: type[AnyLearner] | None = None,
    ) -> None:
        """All of construction that comes before the dataset."""
        source = None if env is None else EnvSource(env, env_kwargs)
        eval_freq, n_episodes = self._evaluation = evaluation
        if eval_freq and source is None:
            raise ValueError(f"eval_freq needs an env to evaluate in, got {eval_freq} and no env")
        own = [EvalCallback(eval_freq=eval_freq, n_eval_episodes=n_episodes)] if eval_freq else []
        super().__init__(config, [*own, *CallbackList(callbacks)], logger)
        self.source = source
        self.env = None if source is None else source.make(source.n_envs or 1, "sync")
        self._given_learner = learner

    # What a subclass may change

    def prepare(self, dataset: Any) -> Any:
        """The part of the dataset to learn from."""
        return dataset

    def kind_of_actions(self) -> str | None:
        """Kind of actions, "continuous" or "discrete"; None if environment or dataset decide."""
        return "continuous"

    # Construction

    predict = play.predict
    export = exported.export
    player = play.player
    make_env = play.make_env
    play_generator = cached_property(play.play_generator)
    env_id = property(play.env_id)
    facts = play.facts
    close = play.close

    def build(self) -> None:
        """Choose the learner, and make the loop that feeds it."""
        vars(self).pop("play_generator", None)
        seeds = Seeds.of(self.seed)
        choice = choose(
            type(self),
            self.config,
            self.observation_space,
            self.action_space,
            learner=self._given_learner,
            seeds=seeds,
            given={},
        )
        self.learner, self.backend_reason = choice.learner, choice.reason
        self.loop = OfflineLoop(
            self.learner,
            self.config,
            seed=seeds.drawing,
            dataset=lambda: self.dataset,
            normalizer=self.normalizer,
            columns=self.columns,
        )

    @property
    def dataset(self) -> Any:
        """The dataset that the agent learns from.

        Raises:
            ValueError: After `from_checkpoint` without one.
        """
        if self._dataset is None:
            if self._dataset_name is None:
                raise ValueError("dataset must be given to from_checkpoint to go on learning")
            self._dataset = self.prepare(open_dataset(self._dataset_name))
            check_dataset(self._dataset, self.observation_space, self.action_space)
        return self._dataset

    # A run

    def train(
        self,
        n_gradient_steps: int | None = None,
        *,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> dict[str, float]:
        """Learn for a number of gradient steps.

        A second call goes on where the first ended, with schedules that span both. After
        `from_checkpoint`, a call without a number finishes the interrupted run.

        Args:
            n_gradient_steps: Steps to add; what was left of an interrupted run, or
                `config.total_timesteps`, when not given.
            callbacks: Called during this run, after the algorithm's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report. With it,
                SIGTERM and Ctrl-C save a checkpoint and end the run. Where it holds a run already,
                a new one gets `run_dir-2`, and so on.
            resume: Go on with the run that `run_dir` holds, if it holds one; `n_gradient_steps` is
                then where the whole run ends.

        Returns:
            Metrics, averaged over the gradient steps since the last report.

        Raises:
            EnvironmentFailed: An environment of an evaluation raised.
            FileExistsError: The run goes on, and `run_dir` holds another one.
            NonFiniteError: Learning diverged.
            SharpwaveIOError: A checkpoint cannot be written.
            ValueError: `n_gradient_steps` is not a positive integer, or there is no dataset.
        """
        if n_gradient_steps is not None:
            n_gradient_steps = positive(n_gradient_steps, name="n_gradient_steps")
        self.loop.check()  # what is wrong with the dataset shows before a run folder is made
        return super().train(n_gradient_steps, callbacks=callbacks, run_dir=run_dir, resume=resume)

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
            n_episodes: Number of episodes.
            env: Environment to play in; one like that of the constructor when not given.
            deterministic: Play the mode of the policy, not samples of it.
            seed: Seed of the environment; one that follows from the run's when not given, so that
                evaluations can be compared.

        Raises:
            ValueError: There is no environment, its spaces are not those of the dataset, or
                `n_episodes` is less than 1.
        """
        if env is None and self.source is not None and not self.source.can_make_another:
            env = self.env  # nothing else plays in it
        return play.evaluate(self, n_episodes, env=env, deterministic=deterministic, seed=seed)

    @classmethod
    def from_checkpoint(
        cls, path: str | os.PathLike[str], dataset: Any = None, **options: Any
    ) -> Self:
        """The algorithm that `save` wrote, ready to predict or to go on with `train()`.

        Args:
            path: The file.
            dataset: The dataset to go on with; that of before if it was given by its path or id.
            **options: Constructor arguments that replace what was saved: `env`, `device`,
                `callbacks`.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It belongs to another algorithm, does not fit `dataset`, or names an
                environment with a module of its own, as in `my_module:My-v0`: it needs `env`.
        """
        return cls._restore(path, {"dataset": dataset, **options})

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: RunConfig,
        arguments: dict[str, Any],
    ) -> Self:
        with reading(path):
            cls._check_header(header)
        given = {"env": None, "env_kwargs": None, "callbacks": None, "logger": None, **arguments}
        given["env"], given["env_kwargs"] = saved_env(
            path, header["env"], given["env"], given["env_kwargs"]
        )
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
        algorithm.build()
        return algorithm

    @classmethod
    def _check_header(cls, header: dict[str, Any]) -> None:
        """Raise where a header is not one that this class wrote."""
        for name in ("observation_space", "action_space"):
            envs.space_from_json(header[name])
        if not isinstance(header["dataset"], str | None):
            raise TypeError(f"dataset must be where it lies, got {header['dataset']!r:.80}")
        for number in header["evaluation"]:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"evaluation must be counts, got {header['evaluation']!r:.80}")
        (_, _), _ = header["evaluation"], header["env"]

    def _arguments(self) -> dict[str, Any]:
        env, env_kwargs = (None, None) if self.source is None else self.source.to_copy()
        freq, n_episodes = self._evaluation
        return {
            "dataset": self._dataset_name if self._dataset is None else self._dataset,
            "header": self._header(),
            "env": env,
            "env_kwargs": env_kwargs,
            "eval_freq": freq,
            "n_eval_episodes": n_episodes,
            "learner": self._given_learner,
        }

    @classmethod
    def _remade(cls, config: RunConfig, arguments: dict[str, Any]) -> Self:
        header, dataset = arguments.pop("header"), arguments.pop("dataset")
        agent = cls._from_header("the copied agent", header, config, {"dataset": None, **arguments})
        if not isinstance(dataset, str):
            agent._dataset = dataset  # which is prepared already
        return agent

    def _header(self) -> dict[str, Any]:
        return {
            **super()._header(),
            "env": None if self.source is None else self.source.to_json(),
            "observation_space": envs.space_to_json(self.observation_space),
            "action_space": envs.space_to_json(self.action_space),
            "dataset": self._dataset_name,
            "evaluation": list(self._evaluation),
        }

    def _state(self) -> dict[str, Any]:
        moments = None
        if self.normalizer is not None:
            moments = {"mean": self.normalizer.mean, "std": self.normalizer.std}
        return {**super()._state(), "normalizer": moments}

    def _load_state(self, state: dict[str, Any], *, in_flight: bool = False) -> None:
        super()._load_state(state, in_flight=in_flight)
        if state["normalizer"] is not None:
            shape = self.observation_space.shape
            mean, std = (array_of(state["normalizer"], name, shape) for name in ("mean", "std"))
            if not (std > 0).all():
                raise ValueError("std must be positive everywhere")
            self.normalizer = self.loop.normalizer = StateNormalizer(mean, std)
