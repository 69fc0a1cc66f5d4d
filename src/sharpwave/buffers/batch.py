"""A batch whose arrays are made once and written again by every `sample(out=...)`."""

from __future__ import annotations

from typing import Any

from sharpwave.types import BatchDict


class Batch(dict[str, Any]):
    """A dict of arrays over memory that `sample(..., out=batch)` fills without allocating.

    Made by `ReplayBuffer.batch`. With torch tensors the tensors share that memory, so a sample goes
    straight into them.
    """

    __slots__ = ("_memory",)

    def __init__(self, arrays: BatchDict, memory: Any) -> None:
        super().__init__(arrays)
        self._memory = memory


def to_torch(value: Any) -> Any:
    """Nested arrays as torch tensors over the same memory."""
    import torch

    if isinstance(value, dict):
        return {key: to_torch(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(to_torch(inner) for inner in value)
    return torch.from_numpy(value)
