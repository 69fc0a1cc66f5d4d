from typing import Any

from sharpwave.types import Array

def environment_specs() -> dict[str, dict[str, Any]]: ...

class VectorEnv:
    """The type under NativeVectorEnv: many environments of one kind."""

    def __init__(
        self, env_id: str, num_envs: int, max_episode_steps: int, option: float,
        autoreset_mode: str, threads: int, /,
    ) -> None: ...
    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]: ...
    def _reset(
        self, mask: Array | None, seeds: Array | None, is_seeded: Array | None,
        low: Array, high: Array, /,
    ) -> Array: ...
    def _save(self) -> dict[str, Any]: ...
    def _restore(
        self, variables: Array, steps: Array, returns: Array, seeds: Array, resets: Array,
        ended: Array, /,
    ) -> None: ...
    def _close(self) -> None: ...
