"""What every algorithm has that learns in an environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sharpwave import envs
from sharpwave.train.algorithm import Algorithm
from sharpwave.train.callbacks import Callback
from sharpwave.train.loggers import LoggerCallback
from sharpwave.train.options import AlgorithmConfig, resolve_config
from sharpwave.train.source import EnvSource, find_normalizer, without_normalizer

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, kw_only=True)
class OnlineConfig(AlgorithmConfig):
    """Options of every algorithm that acts in an environment."""

    n_envs: int = 8
    """Number of environments."""
    total_timesteps: int = 100_000
    """Environment steps of `train()` when it is given none."""
    normalize_obs: bool = False
    """Scale observations by their running mean and deviation."""
    normalize_rewards: bool = False
    """Scale rewards by the running deviation of the discounted return."""
    env_mode: Literal["auto", "native", "sync", "async"] = "auto"
    """Environments in this process or in processes of their own."""

    aliases: ClassVar[dict[str, str]] = {"normalize_reward": "normalize_rewards"}

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("n_envs")


class OnlineAlgorithm(Algorithm):
    """An agent that learns from what it lives through.

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

    Config: ClassVar[type[OnlineConfig]]
    config: OnlineConfig
    leading_arguments: ClassVar[dict[str, Any]] = {
        "env_id": inspect.Parameter.empty,
        "n_envs": None,
        "seed": None,
        "policy": None,
        "logger": None,
        "callbacks": None,
    }
    named_arguments: ClassVar[dict[str, Any]] = {"env_kwargs": None}
    _source: EnvSource

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
        source = EnvSource(env_id, env_kwargs)
        if source.n_envs is not None:
            overrides.setdefault("n_envs", source.n_envs)
        resolved = resolve_config(self.Config, config, overrides)
        super().__init__(resolved, source, callbacks, logger)
        self._given_policy = policy
        self._custom_policy = policy is not None
        self._env_state: dict[str, Any] | None = None

        self.env_seed = self._world_seed
        self.env = self._make_env()
        self.observation_space = self.env.single_observation_space
        self.action_space = self.env.single_action_space
        self.normalizer = find_normalizer(self.env)
        self._choose_backend()
        self.build()

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
        return cls._restore(path, {"env_id": env_id, **options})

    @classmethod
    def preset(cls, env_id: str, **overrides: Any) -> Self:
        """This algorithm with settings that are known to work for an environment.

        Raises:
            ValueError: There is no preset for it.
        """
        from sharpwave.algorithms.presets import preset

        return cls(env_id, **{**preset(cls.name, env_id), **overrides})

    @property
    def subject(self) -> str:
        """How many environments of which kind."""
        return f"{self.config.n_envs} x {self.env_id}"

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: AlgorithmConfig,
        arguments: dict[str, Any],
    ) -> Self:
        if arguments["env_id"] is None:
            if header["env"] is None:
                raise ValueError(
                    f"env_id must be given: {path} was trained in an environment without an id"
                )
            arguments["env_id"] = header["env"]["id"]
            arguments.setdefault("env_kwargs", header["env"]["kwargs"])
        if header["custom_policy"] and arguments.get("policy") is None:
            raise ValueError(f"policy must be given: {path} was trained with a custom network")
        algorithm = cls(config=config, **arguments)
        for name in ("observation_space", "action_space"):
            space, saved = getattr(algorithm, name), envs.space_from_json(header[name])
            if saved != space:
                wanted = f"{name.replace('_', ' ')} of the checkpoint, {saved}"
                raise ValueError(f"env_id must have the {wanted}, got {space}")
        return algorithm

    def _header(self) -> dict[str, Any]:
        return {**super()._header(), "custom_policy": self._custom_policy}

    def _whole_state(self) -> dict[str, Any]:
        return {
            **super()._whole_state(),
            "n_envs": self.config.n_envs,
            "normalizer": None if self.normalizer is None else self.normalizer.state_dict(),
            "env": envs.environment_state(self.env) if self.timesteps else None,  # none before
            "env_random": envs.random_state(self.env) if self.timesteps else None,  # the first step
        }

    def _load_whole_state(self, state: dict[str, Any]) -> None:
        """Continue from `_whole_state`; with another number of environments, with new episodes."""
        same_number = state["n_envs"] == self.config.n_envs
        self._env_state = state["env"] if same_number else None
        if self.normalizer is not None and state["normalizer"] is not None:
            self.normalizer.load_state_dict(state["normalizer"])
        if self._env_state is not None:
            envs.restore_environment_state(self.env, self._env_state)
        elif same_number and state["env_random"] is not None:
            envs.restore_random_state(self.env, state["env_random"])
        super()._load_whole_state(state)

    @property
    def _env_spaces(self) -> tuple[Any, Any]:
        env = without_normalizer(self.env)
        return env.single_observation_space, env.single_action_space

    @property
    def _environments_restored(self) -> bool:
        """Whether the environments stand in the episodes of the checkpoint."""
        return self._env_state is not None

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
