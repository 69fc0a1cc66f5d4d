"""What every algorithm has: generators, prediction, evaluation, checkpoints."""

from __future__ import annotations

import inspect
import os
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from sharpwave import envs
from sharpwave.lazy import torch
from sharpwave.learn import Draws
from sharpwave.train.callbacks import Callback
from sharpwave.train.checkpoint import read_checkpoint, write_checkpoint
from sharpwave.train.devices import find_device
from sharpwave.train.evaluation import EvaluationResult, Player, evaluate
from sharpwave.train.interval import positive
from sharpwave.train.loggers import LoggerCallback
from sharpwave.train.options import AlgorithmConfig, constructor_signature
from sharpwave.train.run import Metrics, Run
from sharpwave.train.source import EnvSource, without_normalizer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Algorithm", "Metrics"]


class Algorithm(Run):
    """An agent and how it learns, from environments or from a dataset.

    A subclass gives `Config`, `build` (networks and optimisers), `iterate` (learn, once) and
    `player` (the policy at play); loops, prediction, evaluation, seeding and checkpoints are here
    and in `Run`, once.

    Args:
        config: All options.
        source: Where its environments come from; None if it has none.
        callbacks: Called during every `train`.
        logger: Where metrics go: a logger, or several.

    Attributes:
        backend: What computes, "native" or "torch".
        backend_reason: Why that one.
    """

    name: ClassVar[str]
    Config: ClassVar[type[AlgorithmConfig]]
    config: AlgorithmConfig
    env: Any
    observation_space: Any
    action_space: Any

    leading_arguments: ClassVar[dict[str, Any]] = {}
    """What the constructor takes by position, with defaults."""
    named_arguments: ClassVar[dict[str, Any]] = {}
    """What else it takes by name beside the options of `Config`."""
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "Config"):
            cls.__signature__ = constructor_signature(
                cls.leading_arguments, cls.named_arguments, cls.Config
            )

    def __init__(
        self,
        config: AlgorithmConfig,
        source: EnvSource | None,
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
    ) -> None:
        super().__init__(config, callbacks, logger)
        self._source = source
        self.optimizers: dict[str, Any] = {}
        self.backend: Literal["native", "torch"] = "torch"
        self.backend_reason = ""
        weights, world, noise = np.random.SeedSequence(self.seed).spawn(3)
        self.weights_generator = np.random.Generator(np.random.Philox(weights))
        self._world_seed = int(world.generate_state(1)[0] >> 1)
        self._noise_seed = int(noise.generate_state(1, np.uint64)[0] >> 1)

    # What a subclass gives

    @abstractmethod
    def build(self) -> None:
        """Make `networks` and their `optimizers`, and what they learn from."""

    @abstractmethod
    def player(self, n_envs: int, deterministic: bool) -> Player:
        """The policy, ready to play `n_envs` environments from their start."""

    def why_not_native(self) -> str | None:
        """Why native code cannot do what the algorithm does; None when it can."""
        return f"{self.name} has no native update"

    def state_dict(self) -> dict[str, Any]:
        """All that learning has changed: networks, optimisers, generators."""
        return {
            "networks": {name: dict(net.state_dict()) for name, net in self.networks.items()},
            "optimizers": {name: one.arrays() for name, one in self.optimizers.items()},
            "generator": {"device": self._kind_of_numbers, "state": self.generator.get_state()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`.

        Raises:
            ValueError: The networks are others than those of the state.
        """
        tensors = torch.from_numpy if self.backend == "torch" else np.asarray
        for name, network in self.networks.items():
            weights = {k: tensors(array) for k, array in state["networks"][name].items()}
            try:
                network.load_state_dict(weights)
            except (RuntimeError, ValueError) as error:
                raise ValueError(f"the network must be that of the checkpoint: {error}") from error
        for name, optimizer in self.optimizers.items():
            arrays = state["optimizers"][name].items()
            optimizer.load_arrays({k: tensors(array) for k, array in arrays})
        if state["generator"]["device"] == self._kind_of_numbers:  # each kind has its own
            self.generator.set_state(tensors(state["generator"]["state"]))

    # What computes

    @cached_property
    def device(self) -> torch.device:
        """Where the networks live."""
        return find_device(self.config.device)

    @cached_property
    def generator(self) -> Any:
        """Where the random numbers of learning come from."""
        return self._make_generator(self._noise_seed)

    @cached_property
    def _play_generator(self) -> Any:
        """Play outside of training draws from its own, so that it does not change the run."""
        return self._make_generator(self._noise_seed + 1)

    def _make_generator(self, seed: int) -> Any:
        if self.backend == "native":
            return Draws(seed)
        return torch.Generator(self.device).manual_seed(seed)

    @property
    def _kind_of_numbers(self) -> str:
        """Generators of one kind go on from each other's states."""
        return "native" if self.backend == "native" else self.device.type

    def _choose_backend(self) -> None:
        """Decide what computes, before anything is built.

        Raises:
            ValueError: Native code is asked for where it cannot be.
        """
        wanted, reason = self.config.backend, self.why_not_native()
        if wanted == "native" and reason is not None:
            raise ValueError(f"backend must be 'auto' or 'torch' here, got 'native': {reason}")
        if wanted == "torch":
            reason = "it was asked for"
        self.backend = "native" if reason is None else "torch"
        self.backend_reason = reason or "native code knows networks, device and options"

    # Identity

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config.seed

    @property
    def env_id(self) -> str | None:
        """Gymnasium id of the environment, if it has one."""
        return None if self._source is None else self._source.env_id

    @property
    @abstractmethod
    def subject(self) -> str:
        """What it learns from, in words."""

    @property
    def _env_spaces(self) -> tuple[Any, Any]:
        """The spaces of the environments that it plays."""
        return self.observation_space, self.action_space

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
        own = env is None or not hasattr(env, "num_envs") or envs.is_tensor_env(env)
        if env is None:
            played = self.make_env(min(n_episodes, 8))
        else:
            played = envs.make_vec_env(env, mode="sync") if own else without_normalizer(env)
        if seed is None:
            seed = int(np.random.SeedSequence((self.seed, 1)).generate_state(1)[0] >> 1)
        try:
            envs.check_same_form(played, *self._env_spaces)
            return evaluate(self.player(played.num_envs, deterministic), played, n_episodes, seed)
        finally:
            if own and (isinstance(env, type) or not hasattr(env, "step")):
                played.close()

    def make_env(self, n_envs: int = 1, **env_kwargs: Any) -> Any:
        """A separate vector environment of the kind of the algorithm's own.

        Args:
            n_envs: How many environments.
            **env_kwargs: For its constructor, such as `render_mode="rgb_array"`.

        Raises:
            ValueError: The algorithm has no environment, or it was given as an object that has no
                id.
        """
        if self._source is None:
            raise ValueError("env must be given: the algorithm has no environment of its own")
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
        write_checkpoint(path, self._header(), self._whole_state())

    @classmethod
    @abstractmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], /, *args: Any, **options: Any) -> Self:
        """The algorithm that `save` wrote, ready to predict or to go on with `train()`."""

    def close(self) -> None:
        """Close the environments."""
        if self.env is not None:
            self.env.close()

    @classmethod
    def _restore(cls, path: str | os.PathLike[str], options: dict[str, Any]) -> Self:
        """What `from_checkpoint` returns; `options` replace what was saved."""
        header, state = read_checkpoint(path)
        if header["algorithm"] != cls.name:
            raise ValueError(
                f"{path} holds {header['algorithm']!r}, not {cls.name!r}: load it with that class"
            )
        changed = {k: v for k, v in options.items() if cls._is_option(k, v)}
        config = cls.Config.from_dict({**header["config"], **changed})
        arguments = {k: v for k, v in options.items() if k not in changed}
        algorithm = cls._from_header(path, header, config, arguments)
        algorithm._load_whole_state(state)
        return algorithm

    @classmethod
    def _is_option(cls, name: str, value: Any) -> bool:  # noqa: ARG003
        """Whether an argument of the constructor is a field of the configuration."""
        return any(field.name == name for field in fields(cls.Config))

    @classmethod
    @abstractmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: AlgorithmConfig,
        arguments: dict[str, Any],
    ) -> Self:
        """An algorithm like the one that wrote a checkpoint, before it learnt anything."""

    def _header(self) -> dict[str, Any]:
        """What a checkpoint says of itself."""
        return {
            "algorithm": self.name,
            "config": self.config.to_dict(),
            "env": None if self._source is None else self._source.to_json(),
            "observation_space": envs.space_to_json(self.observation_space),
            "action_space": envs.space_to_json(self.action_space),
        }

    def _whole_state(self) -> dict[str, Any]:
        return {
            "timesteps": self.timesteps,
            "target_timesteps": self.target_timesteps,
            "updates": self.updates,
            "timings": dict(self.timings),
            "callbacks": {**self._callback_states, **self._hooks.state_dict()},
            "learner": self.state_dict(),
        }

    def _load_whole_state(self, state: dict[str, Any]) -> None:
        """Continue from `_whole_state`."""
        self.timesteps = int(state["timesteps"])
        self.target_timesteps = int(state["target_timesteps"])
        self.updates = int(state["updates"])
        self.timings.update(state["timings"])
        self._callback_states = state["callbacks"]
        self.load_state_dict(state["learner"])
