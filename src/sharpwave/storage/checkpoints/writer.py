"""Writer of checkpoints: tensor by tensor, whole or in shards, in place only when it is whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sharpwave.core.lazy import torch
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints.container import leaf_bytes, write_tensors
from sharpwave.storage.checkpoints.parts import part_paths, remove_unused_parts
from sharpwave.storage.checkpoints.tensors import code_of
from sharpwave.storage.checkpoints.ties import find_aliases
from sharpwave.storage.checkpoints.trees import to_json
from sharpwave.storage.files import replacing, sync_folder, temporary_beside

FORMAT = "sharpwave checkpoint"
PART_FORMAT = "part of a sharpwave checkpoint"
VERSION = 2

PART_BYTES = 2_000_000_000
"""Bytes of tensors that lie in one file; a checkpoint with more has parts."""


def write_checkpoint(path: str | os.PathLike[str], header: dict[str, Any], state: Any) -> None:
    """Write a checkpoint in the place of the one at `path`, which stays if anything fails.

    Tensors are written one by one, from where they lie; tied ones once. More than `PART_BYTES` of
    them are written to several files beside `path`. Where tensors are in shards, all processes that
    hold some write the checkpoint together; header and state are those of the first.

    Args:
        path: The file.
        header: JSON values that say what this is, such as the algorithm and its config.
        state: Nested dicts, lists and tuples of arrays, tensors, numbers, strings and None.

    Raises:
        SharpwaveIOError: The file cannot be written.
        TypeError: The state holds something else; nothing was written.
    """
    path = Path(path)
    leaves: dict[str, Any] = {}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "header": header,
        "state": to_json(state, "state", leaves),
    }
    codes = {name: code_of(leaf, name) for name, leaf in leaves.items()}
    shards = shard_names(leaves)
    aliases = find_aliases({k: leaf for k, leaf in leaves.items() if k not in shards}, codes)
    if aliases:
        document["aliases"] = {name: alias.to_json() for name, alias in aliases.items()}
    stored = {k: leaf for k, leaf in leaves.items() if k not in aliases and k not in shards}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shards:
            document["shards"] = shards
            own = own_shards(leaves, shards)
            _write_together(path, document, stored, own, codes, CheckpointWriters(leaves))
        else:
            _write(path, document, stored, codes)
    except OSError as error:
        raise SharpwaveIOError(
            error.errno, f"cannot write the checkpoint: {error.strerror}", str(path)
        ) from error


def _write(
    path: Path, document: dict[str, Any], leaves: Mapping[str, Any], codes: dict[str, str]
) -> None:
    groups = list(_grouped(leaves, codes))
    try:
        # A part stays locked until the index names it, so that nobody takes it for a torn one.
        with contextlib.ExitStack() as locks:
            if len(groups) > 1:
                document = {**document, "parts": _write_parts(path, groups, leaves, codes, locks)}
                leaves = {}
            with replacing(path) as file:
                write_tensors(file, document, leaves, codes)
    finally:
        remove_unused_parts(path)


def _write_parts(
    path: Path,
    groups: Iterable[list[str]],
    leaves: Mapping[str, Any],
    codes: dict[str, str],
    locks: contextlib.ExitStack,
) -> dict[str, Any]:
    """Write the parts, and give what the index says of them."""
    temporaries, checksums = _write_temporaries(path, groups, leaves, codes, locks)
    tag = _tag(checksums)
    _put(path, temporaries, part_paths(path, tag, len(temporaries)))
    return {"tag": tag, "checksums": checksums}


def _write_together(
    path: Path,
    document: dict[str, Any],
    leaves: Mapping[str, Any],
    shards: Mapping[str, Any],
    codes: dict[str, str],
    together: CheckpointWriters,
) -> None:
    """Write a checkpoint whose parts are those of several processes, and whose index is one's."""

    def write_index() -> None:
        if together.rank == 0:
            parts = {"tag": tag, "checksums": checksums}
            with replacing(path) as file:
                write_tensors(file, {**document, "parts": parts}, leaves, codes)

    of_shards = {name: code_of(leaf, name) for name, leaf in shards.items()}
    groups = list(_grouped(shards, of_shards))
    try:
        with contextlib.ExitStack() as locks:
            temporaries: list[Path] = []

            def write_own() -> list[str]:
                own, found = _write_temporaries(path, groups, shards, of_shards, locks)
                temporaries.extend(own)
                return found

            every = together.do(path, write_own)
            checksums = [one for found in every for one in found]
            tag = _tag(checksums)
            first = sum(map(len, every[: together.rank]))
            places = list(part_paths(path, tag, len(checksums)))[first:][: len(temporaries)]
            together.do(path, lambda: _put(path, temporaries, places))
            together.do(path, write_index)
    finally:
        if together.rank == 0:
            remove_unused_parts(path)


def _tag(checksums: list[str]) -> str:
    return hashlib.blake2b("".join(checksums).encode(), digest_size=8).hexdigest()


def _put(path: Path, temporaries: list[Path], places: Iterable[Path]) -> None:
    """Give parts their names."""
    for temporary, place in zip(temporaries, places, strict=True):
        temporary.chmod(0o644)
        temporary.replace(place)
    sync_folder(path.parent)


def _write_temporaries(
    path: Path,
    groups: Iterable[list[str]],
    leaves: Mapping[str, Any],
    codes: dict[str, str],
    locks: contextlib.ExitStack,
) -> tuple[list[Path], list[str]]:
    """Write parts that have no names yet, and give their checksums."""
    document = {"format": PART_FORMAT, "version": VERSION}
    temporaries, checksums = [], []
    for names in groups:
        temporary = locks.enter_context(temporary_beside(path))
        with temporary.open("r+b") as file:
            part = {name: leaves[name] for name in names}
            checksums.append(write_tensors(file, document, part, codes))
            file.flush()
            os.fsync(file.fileno())
        temporaries.append(temporary)
    return temporaries, checksums


def _grouped(leaves: Mapping[str, Any], codes: dict[str, str]) -> Iterator[list[str]]:
    """The names by file: as many as `PART_BYTES` hold, in their order."""
    names: list[str] = []
    size = 0
    for name, leaf in leaves.items():
        n_bytes = leaf_bytes(leaf, codes[name])
        if names and size + n_bytes > PART_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += n_bytes
    yield names


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


class CheckpointWriters:
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
