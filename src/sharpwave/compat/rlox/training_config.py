"""A whole run as one configuration, as rlox's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sharpwave.config import files as config_files
from sharpwave.core.suggest import did_you_mean

__all__ = ["TrainingConfig"]


@dataclass
class TrainingConfig:
    """Options of a training run: algorithm, environment, length, callbacks and logger.

    Attributes:
        algorithm: A name in `ALGORITHM_REGISTRY`.
        env_id: A Gymnasium id.
        total_timesteps: Environment steps.
        seed: Seed of the run.
        n_envs: Environments.
        hyperparameters: Options of the algorithm.
        callbacks: Of "eval", "checkpoint", "progress" and "timing".
        logger: None, "console", "tensorboard" or "wandb".
        log_dir: Folder of TensorBoard's files; "runs" where it is None.
        eval_freq: Steps between evaluations.
        eval_episodes: Episodes of an evaluation.
        checkpoint_freq: Steps between checkpoints.
        checkpoint_dir: Folder of checkpoints.
        normalize_obs: Normalize observations.
        normalize_rewards: Normalize rewards.

    Raises:
        ValueError: An option is out of range.
    """

    algorithm: str
    env_id: str
    total_timesteps: int = 100_000
    seed: int = 42
    n_envs: int = 1
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    callbacks: list[str] = field(default_factory=list)
    logger: str | None = None
    log_dir: str | None = None
    eval_freq: int = 10_000
    eval_episodes: int = 10
    checkpoint_freq: int = 50_000
    checkpoint_dir: str = "checkpoints"
    normalize_obs: bool = False
    normalize_rewards: bool = False

    def __post_init__(self) -> None:
        for name in (
            *("total_timesteps", "n_envs", "eval_freq", "eval_episodes", "checkpoint_freq"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> TrainingConfig:
        """A configuration of named options.

        Raises:
            TypeError: An option does not exist, or one is missing.
        """
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise TypeError(
                    f"TrainingConfig has no option {name!r}{did_you_mean(str(name), names)}"
                )
        return cls(**options)

    @classmethod
    def from_file(cls, path: str | Path) -> TrainingConfig:
        """Read a YAML, TOML or JSON file, which its suffix tells."""
        return cls._from_options(config_files.read(Path(path)))

    @classmethod
    def from_yaml(cls, path: str | Path) -> TrainingConfig:
        """Read a YAML file."""
        return cls._from_options(config_files.read(Path(path), "yaml"))

    @classmethod
    def from_toml(cls, path: str | Path) -> TrainingConfig:
        """Read a TOML file."""
        return cls._from_options(config_files.read(Path(path), "toml"))

    @classmethod
    def _from_options(cls, options: Mapping[str, Any]) -> TrainingConfig:
        # TOML has no null: `to_toml` writes a word for it.
        nothing = {name for name in ("logger", "log_dir") if options.get(name) == "none"}
        return cls.from_dict({**options, **dict.fromkeys(nothing)})

    def merge(self, overrides: Mapping[str, Any]) -> TrainingConfig:
        """The same with other values of some options."""
        return self.from_dict({**self.to_dict(), **overrides})

    def to_dict(self) -> dict[str, Any]:
        """All options by name."""
        return asdict(self)

    def to_yaml(self, path: str | Path) -> None:
        """Write a YAML file."""
        config_files.write_yaml(Path(path), self.to_dict())

    def to_toml(self, path: str | Path) -> None:
        """Write a TOML file."""
        config_files.write_toml(Path(path), self.to_dict())
