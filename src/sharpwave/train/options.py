"""Options that every algorithm has, and the signature of their constructors."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from sharpwave.train.config import Config


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Config):
    """Options of every algorithm that acts in an environment."""

    n_envs: int = 8
    """Number of environments."""
    seed: int = 42
    """Seed of weights, actions and environments."""
    total_timesteps: int = 100_000
    """Environment steps of `train()` when it is given none."""
    gamma: float = 0.99
    """Discount of future rewards."""
    normalize_obs: bool = False
    """Scale observations by their running mean and deviation."""
    normalize_rewards: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    device: str = "cpu"
    """Where the networks live."""
    threads: int = 0
    """Threads of torch; 0 takes one for small networks and torch's number for large ones."""
    env_mode: Literal["auto", "native", "sync", "async"] = "auto"
    """Environments in native code, in this process or in processes of their own."""

    aliases: ClassVar[dict[str, str]] = {"normalize_reward": "normalize_rewards"}

    def check(self) -> None:
        """Check the values."""
        self.require_positive("n_envs", "total_timesteps")
        self.require_range("gamma", 0, 1)
        self.require_range("seed", 0, 2**63)
        self.require_range("threads", 0, 4096)


def constructor_signature(config: type[AlgorithmConfig]) -> inspect.Signature:
    """A constructor's signature with every option and its default, which `config` alone knows."""
    kind = inspect.Parameter
    defaults = {field.name: field.default for field in fields(config)}
    leading = [
        kind("env_id", kind.POSITIONAL_OR_KEYWORD),
        kind("n_envs", kind.POSITIONAL_OR_KEYWORD, default=defaults.pop("n_envs")),
        kind("seed", kind.POSITIONAL_OR_KEYWORD, default=defaults.pop("seed")),
    ]
    leading += [
        kind(name, kind.POSITIONAL_OR_KEYWORD, default=None)
        for name in ("policy", "logger", "callbacks")
    ]
    options = [
        kind(name, kind.KEYWORD_ONLY, default=default)
        for name, default in {"config": None, "env_kwargs": None, **defaults}.items()
    ]
    return inspect.Signature([*leading, *options])


def resolve_config(cls: type[AlgorithmConfig], config: Any, overrides: dict[str, Any]) -> Any:
    """The configuration that a constructor was given: all options at once, single ones, or both.

    Raises:
        TypeError: `config` is neither of `cls` nor a dict, or an option does not exist.
    """
    if config is None:
        return cls(**overrides)
    if isinstance(config, dict):
        return cls.from_dict({**config, **overrides})
    if not isinstance(config, cls):
        raise TypeError(f"config must be a {cls.__name__} or a dict, got {type(config).__name__}")
    return config.merge(**overrides)
