"""A vector environment with each environment in a process of its own."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from sharpwave.envs.processes import PATIENCE, Watching, shut_down, shut_down_here
from sharpwave.envs.python import EnvMaker, made
from sharpwave.envs.worker import work
from sharpwave.types import Array, Nested

__all__ = ["SubprocessVectorEnv"]

if TYPE_CHECKING:
    Base = AsyncVectorEnv[Any, Any]
else:  # Gymnasium 1.1 has it without parameters
    Base = AsyncVectorEnv


class SubprocessVectorEnv(Watching, Base):
    """Steps environments at the same time, each in its own process.

    Worth it for environments that take more than some 100 µs for a step. Episodes end as in
    PythonVectorEnv (Gymnasium's mode SAME_STEP). A worker that dies is noticed at once. Workers
    leave signals to this process and end with it.

    Args:
        makers: Each makes one environment; they travel to the processes by cloudpickle.
        context: Start method of `multiprocessing`; None for Python's default.

    Raises:
        EnvironmentFailed: A maker raised; `reset`, `step` and `call` raise it when an environment
            raises or its process dies.
        TypeError: A maker made something else than an environment, or the spaces are not supported.

    Example:
        >>> import gymnasium as gym
        >>> env = SubprocessVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
        >>> obs, infos = env.reset(seed=0)
        >>> obs.shape
        (2, 4)
        >>> env.close()
    """

    def __init__(self, makers: Sequence[EnvMaker], context: str | None = None) -> None:
        if len(makers) == 0:
            raise ValueError("makers must make at least one environment, got none")
        try:
            with self._watching():
                super().__init__(
                    [partial(made, maker, i) for i, maker in enumerate(makers)],
                    context=context,
                    worker=work,
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except BaseException:
            shut_down(getattr(self, "parent_pipes", []), getattr(self, "processes", []), PATIENCE)
            self.closed = True
            raise
        # Also at the exit of Python, before multiprocessing waits for its children.
        weakref.finalize(
            self, shut_down_here, os.getpid(), self.parent_pipes, self.processes, PATIENCE
        )

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Nested, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`."""
        with self._watching():
            return super().reset(seed=seed, options=None if options is None else dict(options))

    def step(self, actions: Any) -> tuple[Nested, Array, Array, Array, dict[str, Any]]:
        """Step all environments."""
        with self._watching():
            return super().step(actions)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The results of a method of each environment or its wrappers, or their attribute."""
        with self._watching():
            return super().call(name, *args, **kwargs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment: one value for each, or the same for all."""
        with self._watching():
            super().set_attr(name, values)

    def get_states(self, kind: str) -> tuple[Any, ...]:
        """The "state" or "random" state of each environment with its wrappers."""
        self._assert_is_running()
        return self._ask("_get_state", [kind] * self.num_envs)

    def set_states(self, kind: str, states: Sequence[Any]) -> None:
        """Put each environment into a state that `get_states` gave."""
        self._assert_is_running()
        self._ask("_set_state", [(kind, state) for state in states])

    def _give_up(self) -> None:
        self._state = AsyncState.DEFAULT  # no answer is awaited any more
        self.close()

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close every environment and end its process.

        Args:
            timeout: Seconds that the environments have to close; 5 if None.
            terminate: Do not wait for them.
        """
        patience = PATIENCE if timeout is None else timeout
        shut_down(self.parent_pipes, self.processes, 0.0 if terminate else patience)
