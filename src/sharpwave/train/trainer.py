"""One object for a whole run: an algorithm by name, its environment, its settings, its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpwave.algorithms.registry import algorithm_class
from sharpwave.train.callbacks import Callback
from sharpwave.train.checkpoint import read_header
from sharpwave.train.evaluation import EvaluationResult
from sharpwave.train.loggers import LoggerCallback
from sharpwave.train.online import OnlineAlgorithm
from sharpwave.train.options import AlgorithmConfig

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.train.algorithm import Algorithm


class Trainer:
    """Trains an algorithm that is given by its name.

    Args:
        algorithm: Name of an algorithm, such as `ppo`, or its class.
        env: A Gymnasium id, an environment, a function that makes one, or a vector environment;
            CartPole-v1 when not given. With `dataset`, where to evaluate, if anywhere.
        seed: Seed of weights, actions and environments; what `config` says when not given.
        config: Options: a dict, a configuration, or the path of a YAML, TOML or JSON file.
        callbacks: Called during every `train`.
        logger: Where metrics go: a logger, or several.
        run_dir: Folder that receives config, metrics, checkpoints and a report.
        dataset: What an offline algorithm learns from.
        **overrides: Single options, which win over `config`.

    Attributes:
        algo: The algorithm.
        run_dir: The folder, or None.

    Raises:
        TypeError: An option does not exist (the nearest name is in the message).
        ValueError: There is no such algorithm, or an option has an impossible value.

    Example:
        >>> trainer = Trainer("ppo", env="CartPole-v1", n_envs=4, n_steps=64)
        >>> metrics = trainer.train(512)
        >>> result = trainer.evaluate(5)
    """

    def __init__(
        self,
        algorithm: str | type[Algorithm],
        env: Any = None,
        seed: int | None = None,
        config: Mapping[str, Any] | AlgorithmConfig | str | os.PathLike[str] | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        *,
        dataset: Any = None,
        **overrides: Any,
    ) -> None:
        cls: Any = algorithm_class(algorithm) if isinstance(algorithm, str) else algorithm
        self.run_dir = None if run_dir is None else Path(run_dir)
        online = issubclass(cls, OnlineAlgorithm)
        if online and dataset is not None:
            raise TypeError(f"dataset must not be given: {cls.name} learns in an environment")
        where = {"env_id": env or "CartPole-v1"} if online else {"dataset": dataset, "env": env}
        self.algo: Algorithm = cls(
            **where,
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
        """The trainer of what was saved, whichever algorithm it is.

        Args:
            path: The checkpoint.
            env: The environment; the one in the checkpoint when not given.
            run_dir: Folder that receives what comes next.
            **options: What `from_checkpoint` of the algorithm takes, such as `dataset`.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            ValueError: It needs `env` or `policy`.
        """
        algorithm = algorithm_class(read_header(path)["algorithm"])
        name = "env_id" if issubclass(algorithm, OnlineAlgorithm) else "env"
        trainer = cls.__new__(cls)
        trainer.algo = algorithm.from_checkpoint(path, **{name: env}, **options)
        trainer.run_dir = None if run_dir is None else Path(run_dir)
        return trainer

    @property
    def env(self) -> Any:
        """The vector environment of training; None where there is none."""
        return self.algo.env

    def train(self, total_timesteps: int | None = None) -> dict[str, float]:
        """Learn for a number of steps; see `Algorithm.train`."""
        return self.algo.train(total_timesteps, run_dir=self.run_dir)

    def evaluate(self, n_episodes: int = 20, **options: Any) -> EvaluationResult:
        """Play whole episodes in a separate environment; see `Algorithm.evaluate`."""
        return self.algo.evaluate(n_episodes, **options)

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """The action for one observation, or the actions for a batch."""
        return self.algo.predict(obs, deterministic)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint; see `Algorithm.save`."""
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
            n_episodes: How many episodes.
            record: The mp4 file to film them into; a window opens when not given.
            deterministic: Play the mode of the policy, not samples of it.

        Raises:
            ImportError: What renders or films is not installed.
            ValueError: The environment has no id, or cannot render so.
        """
        if record is not None:
            from sharpwave.train.video import record_video

            result: EvaluationResult = record_video(
                self.algo, Path(record), n_episodes, deterministic=deterministic
            )
            return result
        env = self.algo.make_env(1, render_mode="human")
        try:
            return self.algo.evaluate(n_episodes, env=env, deterministic=deterministic)
        finally:
            env.close()

    def close(self) -> None:
        """Close the environments."""
        self.algo.close()


def _options(cls: type[Algorithm], config: Any) -> AlgorithmConfig | dict[str, Any] | None:
    if config is None or isinstance(config, AlgorithmConfig):
        return config
    if isinstance(config, Mapping):
        return dict(config)
    if isinstance(config, str | os.PathLike):
        return cls.Config.read_options(Path(config))
    raise TypeError(f"config must be options or a file that holds them, got {config!r}")
