"""Source of the multi-agent environments of a run: an id, an instance or a factory."""

from __future__ import annotations

from typing import Any

from sharpwave.envs.multi import make_multi_env
from sharpwave.loops.source import EnvSource, taken_arguments

__all__ = ["MultiEnvSource"]


class MultiEnvSource(EnvSource):
    """A multi-agent environment as the user named it; see `EnvSource`.

    Attributes:
        groups: Agents by the name of their group, as `make_multi_env` takes them.
    """

    groups: Any = None

    def make(self, n_envs: int, mode: str) -> Any:
        """The environments to train in."""
        self._mode = mode
        return self._made(n_envs, mode, self.env_kwargs)

    def make_another(self, n_envs: int, **env_kwargs: Any) -> Any:
        """A separate vector environment of the same kind, for evaluation.

        Raises:
            ValueError: It was given as an object that cannot be made again.
        """
        if self._is_made:
            raise ValueError(
                "env must be given: the training environment is an object, so a separate one "
                "cannot be made for evaluation"
            )
        if not isinstance(self.env, str):
            env_kwargs = taken_arguments(self.env, env_kwargs)
        mode = "auto" if self._mode == "auto" else "sync"
        return self._made(n_envs, mode, {**self.env_kwargs, **env_kwargs})

    def _made(self, n_envs: int, mode: str, kwargs: dict[str, Any]) -> Any:
        return make_multi_env(
            self.env, n_envs, mode=mode, groups=self.groups, env_kwargs=kwargs or None
        )
