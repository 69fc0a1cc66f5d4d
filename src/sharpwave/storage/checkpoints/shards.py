"""Checkpoints that several processes write together, each the parts of tensors that it holds.

A tensor in shards, cut along its first axis, lies in the file as one tensor for each process, by
its own name, an @ and the number of the process; the index says which make up which. Whoever reads
gets whole tensors, however many processes wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sharpwave.core.lazy import torch
from sharpwave.errors import SharpwaveIOError

__all__ = ["Together", "is_sharded", "own_shards", "shard_names"]

T = TypeVar("T")


def is_sharded(leaf: Any) -> bool:
    """Return whether only a shard of a tensor lies in this process."""
    return hasattr(leaf, "to_local")


def own_shards(leaves: Mapping[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    """This process's shards of sharded tensors, by their names in the file, tied ones once.

    Args:
        leaves: All tensors and arrays.
        names: Result of `shard_names` for them.
    """
    return {
        names[name][leaf.device_mesh.get_local_rank()]: leaf.to_local()
        for name, leaf in leaves.items()
        if name in names
    }


def shard_names(leaves: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of the shards of each tensor in shards; tied tensors have the same."""
    first: dict[int, str] = {}
    found = {}
    for name, leaf in leaves.items():
        if is_sharded(leaf):
            stored = first.setdefault(id(leaf), name)
            found[name] = [f"{stored}@{rank}" for rank in range(leaf.device_mesh.size())]
    return found


class Together:
    """The processes that write a checkpoint; those of the first tensor in shards.

    Args:
        leaves: All tensors and arrays, at least one of them in shards.
    """

    def __init__(self, leaves: Mapping[str, Any]) -> None:
        mesh = next(leaf for leaf in leaves.values() if is_sharded(leaf)).device_mesh
        self.rank, self.size = mesh.get_local_rank(), mesh.size()
        self._group = mesh.get_group()

    def do(self, path: Path, work: Callable[[], T]) -> list[T]:
        """Results of a function in every process, in their order.

        Raises:
            SharpwaveIOError: In all of them, where it raised OSError in one.
        """
        done: T | None = None
        failure = None
        try:
            done = work()
        except OSError as error:
            failure = error.strerror or str(error)
        told: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(told, (failure, done), group=self._group)
        for rank, (failure, _) in enumerate(told):
            if failure is not None:
                raise SharpwaveIOError(f"process {rank} failed: {failure}: {path}")
        return [found for _, found in told]
