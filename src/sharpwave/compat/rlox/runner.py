"""Training from a configuration, as rlox's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sharpwave.compat.rlox.callbacks import (
    Callback,
    CheckpointCallback,
    EvalCallback,
    ProgressBarCallback,
    TimingCallback,
)
from sharpwave.compat.rlox.config import TrainingConfig
from sharpwave.compat.rlox.logging import ConsoleLogger, TensorBoardLogger, WandbLogger
from sharpwave.compat.rlox.trainer import Trainer
from sharpwave.core.suggest import did_you_mean
from sharpwave.envs.named import names_code

__all__ = ["TrainingConfig", "train_from_config"]


def train_from_config(config: TrainingConfig | str | Path) -> dict[str, float]:
    """Train as a configuration says.

    Args:
        config: A `TrainingConfig`, or a YAML or TOML file with one.

    Returns:
        The metrics of `Trainer.train`.

    Raises:
        TypeError: An option does not exist.
        ValueError: An option has an impossible value, the file has another suffix, or names an
            environment of a module, as in `helper:Env-v0`.

    Example:
        >>> options = {"n_steps": 32}
        >>> config = TrainingConfig("ppo", "CartPole-v1", 64, n_envs=2, hyperparameters=options)
        >>> train_from_config(config)["timesteps"]
        64.0
    """
    if not isinstance(config, TrainingConfig):
        path, config = config, TrainingConfig.from_file(config)
        if names_code(config.env_id):
            raise ValueError(
                f"{path} names the environment {config.env_id!r}, whose module would be imported, "
                "and a file may not run code: if you trust it, read it by TrainingConfig.from_file "
                "and pass that"
            )
    flags = {name: True for name in ("normalize_obs", "normalize_rewards") if getattr(config, name)}
    trainer = Trainer(
        config.algorithm,
        config.env_id,
        {**config.hyperparameters, "n_envs": config.n_envs, **flags},
        [_callback(name, config) for name in config.callbacks],
        _logger(config),
        config.seed,
    )
    return trainer.train(config.total_timesteps)


def _callback(name: str, config: TrainingConfig) -> Callback:
    makers = {
        "eval": lambda: EvalCallback(None, config.eval_freq, config.eval_episodes),
        "checkpoint": lambda: CheckpointCallback(config.checkpoint_freq, config.checkpoint_dir),
        "progress": ProgressBarCallback,
        "timing": TimingCallback,
    }
    if name not in makers:
        raise ValueError(
            f"callbacks must be of {', '.join(makers)}, got {name!r}{did_you_mean(name, makers)}"
        )
    return makers[name]()


def _logger(config: TrainingConfig) -> Any:
    makers: dict[str | None, Any] = {
        None: lambda: None,
        "console": ConsoleLogger,
        "tensorboard": lambda: TensorBoardLogger(config.log_dir or "runs"),
        "wandb": WandbLogger,
    }
    if config.logger not in makers:
        raise ValueError(
            f"logger must be None, 'console', 'tensorboard' or 'wandb', got {config.logger!r}"
        )
    return makers[config.logger]()
