"""Source of the environments of a run, which can make more of them."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from sharpwave.core.ranks import Ranks
from sharpwave.distributed import Access, EnvRecipe, WorkerRecipe
from sharpwave.envs import NativeVectorEnv, VecNormalize, make_vec_env
from sharpwave.envs.named import WrappedEnv, described_env, env_of_file

OF_THE_VECTOR = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")
"""Arguments that `gymnasium.make_vec` adds to a spec."""


class EnvSource:
    """An environment as the user named it: an id, an instance, a factory or a vector environment.

    Args:
        env: The environment that the user gave.
        env_kwargs: Keyword arguments for an id.

    Attributes:
        device: Device of the networks, for environments that step tensors there.
    """

    device: str | None = None

    def __init__(self, env: Any, env_kwargs: Mapping[str, Any] | None = None) -> None:
        if not isinstance(env_kwargs, Mapping | None):
            raise TypeError(f"env_kwargs must be a dict, got {env_kwargs!r}")
        self.env = env
        self.env_kwargs = dict(env_kwargs or {})
        self._mode = "auto"
        self._workers: WorkerRecipe | None = None

    @property
    def env_id(self) -> str | None:
        """Its Gymnasium id, if that makes the same environment again, or is in its name."""
        if isinstance(self.env, str):
            return self.env
        if isinstance(self.env, WrappedEnv):
            return self.env.env_id
        spec = getattr(self.env, "spec", None) if self._is_made else None
        # The id does not make the wrappers that were put around it by hand.
        if spec is None or spec.additional_wrappers or spec.kwargs.get("wrappers"):
            return None
        return str(spec.id)

    @property
    def n_envs(self) -> int | None:
        """Number of environments of an instance; None where the run chooses it."""
        if not self._is_made:
            return None
        return int(self.env.num_envs) if hasattr(self.env, "num_envs") else 1

    @property
    def _is_made(self) -> bool:
        """True if it is an environment already, not an id or a factory."""
        return not isinstance(self.env, str | type) and hasattr(self.env, "step")

    @property
    def _spec_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of a single environment, from the spec of a made one."""
        kwargs: dict[str, Any] = self.env.spec.kwargs
        return {name: value for name, value in kwargs.items() if name not in OF_THE_VECTOR}

    def use_workers(self, config: Any, access: Access, ranks: Ranks) -> int:
        """Train at the servers of `config.worker_addresses`; the environments of an actor there.

        Args:
            config: Options of all processes that learn together.
            access: Token and TLS files, as the servers have them.
            ranks: Those processes; each takes the servers of its actors.

        Raises:
            ConnectionError: A server is not there.
            PermissionError: A server asks for another token.
            TypeError: The environment is no id, which servers could be compared with.
            ValueError: The servers have another environment, or others than each other.
        """
        if not isinstance(self.env, str):
            raise TypeError(
                f"env_id must be an id where worker_addresses are given, got {self.env!r}"
            )
        workers = WorkerRecipe.find(self.env, config.worker_addresses, config.n_actors, access)
        if self.env_kwargs and self.env_kwargs != workers.kwargs:
            raise ValueError(
                f"env_kwargs must be those of the servers, {workers.kwargs}, got {self.env_kwargs}"
            )
        self.env_kwargs = dict(workers.kwargs or {})  # with which an evaluation is made here
        if not ranks.is_alone and len(set(workers.sizes)) > 1:
            raise ValueError(
                "worker_addresses must give all actors as many environments where several "
                f"learners divide batches, got {list(workers.sizes)}"
            )
        own = config.n_actors // ranks.size
        self._workers = workers.part(ranks.rank * own, own)
        return workers.n_envs

    def make(self, n_envs: int, mode: str) -> Any:
        """The vector environment to train in; at servers, that of the first actor."""
        if self._workers is not None:
            return self._workers.make()
        self._mode = mode
        kwargs = self.env_kwargs or None
        if mode == "device":
            return make_vec_env(self.env, n_envs, env_kwargs=kwargs, device=self.device)
        return make_vec_env(self.env, n_envs, mode=mode, env_kwargs=kwargs)

    def to_copy(self) -> tuple[Any, dict[str, Any]]:
        """Environment and arguments for a copy of the agent: native ones by id, or itself."""
        if isinstance(self.env, NativeVectorEnv) and self.env_id is not None:
            return self.env_id, self._spec_kwargs
        return self.env, self.env_kwargs

    @property
    def can_make_another(self) -> bool:
        """True if `make_another` can make one."""
        return not self._is_made or self.env_id is not None

    def recipe(self, n_envs: int) -> EnvRecipe | WorkerRecipe | None:
        """Recipe that makes such environments once more, to train in; None if there is none."""
        return self.own_recipe(n_envs) if self._workers is None else self._workers

    def own_recipe(self, n_envs: int) -> EnvRecipe | None:
        """Recipe of environments made in the process that steps them; None if there is none."""
        if not self._is_made:
            return EnvRecipe(env=self.env, n_envs=n_envs, mode=self._mode, kwargs=self.env_kwargs)
        if self.env_id is None:
            return None
        kwargs = {**self._spec_kwargs, "render_mode": None}
        return EnvRecipe(env=self.env_id, n_envs=n_envs, kwargs=kwargs)

    def make_another(self, n_envs: int, **env_kwargs: Any) -> Any:
        """A separate vector environment of the same kind, for evaluation.

        Raises:
            ValueError: It was given as an object that cannot be made again.
        """
        again: str | Callable[[], Any]
        if isinstance(self.env, str):
            again, kwargs = self.env, {**self.env_kwargs, **env_kwargs}
        elif not self._is_made:
            again, kwargs = self.env, {**self.env_kwargs, **taken_arguments(self.env, env_kwargs)}
        elif self.env_id is not None:
            kwargs = {**self._spec_kwargs, "render_mode": None, **env_kwargs}
            again = self.env_id
        else:
            raise ValueError(
                "env must be given: the training environment is an object without an id, "
                "so a separate one cannot be made for evaluation"
            )
        # Processes of their own are not worth their start for a few episodes.
        mode = "auto" if self._mode in ("auto", "device") else "sync"
        return make_vec_env(again, n_envs, mode=mode, env_kwargs=kwargs or None)

    def to_json(self) -> dict[str, Any] | None:
        """The id and arguments for a checkpoint to make it again; None if that is impossible."""
        if self.env_id is None:
            return None
        kwargs = self._spec_kwargs if self._is_made else self.env_kwargs
        try:
            json.dumps(kwargs)
        except TypeError:
            return None
        saved = {"id": self.env_id, "kwargs": kwargs}
        if isinstance(self.env, WrappedEnv):  # names to say, which nobody imports
            saved["wrappers"] = self.env.wrapper_names
        return saved


def saved_env(
    path: str | os.PathLike[str], saved: Any, env: Any, env_kwargs: Mapping[str, Any] | None
) -> tuple[Any, Mapping[str, Any] | None]:
    """Environment to make for a loaded checkpoint: the given one, or the one that it names.

    Args:
        path: The checkpoint.
        saved: The result of `EnvSource.to_json` in it.
        env: The environment that the user gave, or None.
        env_kwargs: Its arguments, or None; an id that is given again keeps those of the checkpoint.

    Raises:
        SharpwaveIOError: The checkpoint is damaged.
        ValueError: Its environment would import a module, and none was given.
    """
    if env is None and saved is not None:
        env, kwargs = env_of_file(path, saved)
    elif isinstance(env, str | WrappedEnv) and saved is not None:
        env_id, kwargs, _ = described_env(path, saved)
        if env_id != EnvSource(env).env_id:
            kwargs = {}
    else:
        kwargs = {}
    return env, kwargs if env_kwargs is None else env_kwargs


def is_another(saved: Any, env_id: str | None) -> bool:
    """Return whether an environment has another id than the one that a checkpoint names."""
    if saved is None or env_id is None:
        return False
    return str(saved["id"]).rpartition(":")[2] != env_id.rpartition(":")[2]


def taken_arguments(make: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those of some arguments that a function takes, such as `render_mode`."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # some callables of C have none
        return {}
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return kwargs
    return {name: value for name, value in kwargs.items() if name in parameters}


def find_normalizer(env: Any) -> Any:
    """The VecNormalize around an environment, or None."""
    while env is not None:
        if isinstance(env, VecNormalize):
            return env
        env = getattr(env, "env", None)
    return None


def without_normalizer(env: Any) -> Any:
    """The environment below a VecNormalize: the player normalizes with the run's statistics."""
    return env.env if isinstance(env, VecNormalize) else env
