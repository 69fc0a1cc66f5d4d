"""One object for a whole run: an algorithm by name, its environment, its settings, its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.agents.language import LanguageAgent
from sharpwave.algorithms.registry import algorithm_class, source_names
from sharpwave.config.options import RunConfig
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.loggers import LoggerCallback
from sharpwave.storage.checkpoints import read_header
from sharpwave.storage.files import reading

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.agents import Agent
    from sharpwave.runs.evaluation import EvaluationResult


class Trainer:
    """Trains an algorithm that is given by its name.

    Args:
        algorithm: Name of an algorithm, such as `ppo`, or its class.
        env: A Gymnasium id, an environment, a function that makes one, or a vector environment;
            CartPole-v1 when not given. With `dataset`, where to evaluate, if anywhere. None for an
            algorithm without environments.
        seed: Seed of weights, actions and environments; what `config` says when not given.
        config: Options: a dict, a configuration, or the path of a YAML, TOML or JSON file.
        callbacks: Called during every `train`.
        logger: A logger of metrics, or several.
        run_dir: Folder that receives config, metrics, checkpoints and a report.
        dataset: The dataset of an offline algorithm.
        **overrides: Single options, which win over `config`; of language models also `model`,
            `tokenizer`, `prompts`, `reward_fn` and what else their constructors take.

    Attributes:
        algo: The algorithm.
        run_dir: The folder, or None.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message), or `env` or
            `dataset` is given to an algorithm that takes none.
        ValueError: There is no such algorithm, or an option has an impossible value.

    Example:
        >>> trainer = Trainer("ppo", env="CartPole-v1", n_envs=4, n_steps=64)
        >>> metrics = trainer.train(512)
        >>> result = trainer.evaluate(5)
    """

    def __init__(
        self,
        algorithm: str | type[Agent],
        env: Any = None,
        seed: int | None = None,
        config: Mapping[str, Any] | RunConfig | str | os.PathLike[str] | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        dataset: Any = None,
        **overrides: Any,
    ) -> None:
        cls: Any = algorithm_class(algorithm) if isinstance(algorithm, str) else algorithm
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.algo: Agent = cls(
            **_source(cls, env, dataset),
            seed=seed,
            callbacks=callbacks,
            logger=logger,
            config=_options(cls, config),
            **overrides,
        )

    @classmethod
    def from_checkpoint(
        cls,
        path: str | os.PathLike[str],
        env: Any = None,
        *,
        run_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Restore the trainer of a checkpoint of any algorithm.

        Args:
            path: The checkpoint.
            env: The environment; the one in the checkpoint when not given.
            run_dir: Folder that receives the metrics and checkpoints from now on.
            **options: Arguments of `from_checkpoint` of the algorithm, such as `dataset`.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It needs `env` or `policy`.
        """
        with reading(path):
            algorithm = algorithm_class(read_header(path)["algorithm"])
        trainer = cls.__new__(cls)
        trainer.algo = algorithm.from_checkpoint(path, **_environment(algorithm, env), **options)
        trainer.run_dir = None if run_dir is None else Path(run_dir)
        return trainer

    @property
    def env(self) -> Any:
        """The vector environment of training; None where there is none."""
        return getattr(self.algo, "env", None)

    def train(
        self, total_timesteps: int | None = None, *, resume: bool = False
    ) -> dict[str, float]:
        """Learn for a number of steps, of language models updates; see `Agent.train`."""
        algo: Any = self.algo
        given = () if isinstance(algo, LanguageAgent) else (total_timesteps,)
        named = {} if given else {"n_updates": total_timesteps}
        metrics: dict[str, float] = algo.train(*given, **named, run_dir=self.run_dir, resume=resume)
        self.run_dir = algo.run_dir
        return metrics

    def evaluate(self, n_episodes: int = 20, **options: Any) -> EvaluationResult:
        """Play whole episodes in a separate environment; see `Agent.evaluate`.

        Language models complete as many of their prompts, or are judged on as many examples.
        """
        algo: Any = self._with("evaluate")
        evaluate = algo.evaluate_in_run if isinstance(algo, LanguageAgent) else algo.evaluate
        result: EvaluationResult = evaluate(n_episodes, **options)
        return result

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """The action for one observation, or the actions for a batch; or completions of prompts."""
        algo: Any = self._with("predict")
        if isinstance(algo, LanguageAgent):
            return algo.predict(obs, greedy=deterministic)
        return algo.predict(obs, deterministic)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint; see `Agent.save`."""
        self.algo.save(path)

    def enjoy(
        self,
        n_episodes: int = 3,
        record: str | os.PathLike[str] | None = None,
        *,
        deterministic: bool = True,
    ) -> EvaluationResult:
        """Watch the policy play, in a window or in a film.

        Args:
            n_episodes: Number of episodes.
            record: The mp4 file to film them into; a window opens when not given.
            deterministic: Play the mode of the policy, not samples of it.

        Raises:
            ImportError: A package that renders or films is not installed.
            ValueError: The environment has no id, or cannot render so.
        """
        algo = self._with("evaluate")
        if record is not None:
            from sharpwave.runs.video import record_video

            result: EvaluationResult = record_video(
                algo, Path(record), n_episodes, deterministic=deterministic
            )
            return result
        env = algo.make_env(1, render_mode="human")
        try:
            played: EvaluationResult = algo.evaluate(
                n_episodes, env=env, deterministic=deterministic
            )
            return played
        finally:
            env.close()

    def close(self) -> None:
        """Close the environments."""
        self.algo.close()

    def _with(self, method: str) -> Agent:
        """The algorithm, which must have what those without a policy do not have."""
        if not hasattr(self.algo, method):
            raise TypeError(f"{self.algo.name} has no {method}: it does not act in environments")
        return self.algo


def _source(cls: Any, env: Any, dataset: Any) -> dict[str, Any]:
    """The environment or dataset of an algorithm, by the names of its constructor's arguments."""
    takes = source_names(cls)
    if "dataset" in takes:
        return {"dataset": dataset, **_environment(cls, env)}
    if dataset is not None:
        reason = "learns in an environment" if takes else "takes none"
        raise TypeError(f"dataset must not be given: {cls.name} {reason}")
    return _environment(cls, env or ("CartPole-v1" if "env_id" in takes else None))


def _environment(cls: Any, env: Any) -> dict[str, Any]:
    names = source_names(cls) - {"dataset"}
    if not names and env is not None:
        raise TypeError(f"env must not be given: {cls.name} has no environment")
    return dict.fromkeys(names, env)


def _options(cls: type[Agent], config: Any) -> RunConfig | dict[str, Any] | None:
    if config is None or isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, str | os.PathLike):
        return cls.Config.read_options(Path(config))
    raise TypeError(f"config must be options or a file that holds them, got {config!r}")
