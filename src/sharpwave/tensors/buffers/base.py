"""Base of all tensor buffers: places, counters, and the strategy when one is full."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import torch
from torch import Tensor

from sharpwave.buffers.replay import check_count
from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints import read_checkpoint, write_checkpoint
from sharpwave.tensors.buffers.fields import Fields, TensorField
from sharpwave.tensors.buffers.statistics import StatsTracker
from sharpwave.types import Nested

__all__ = ["ResetStrategy", "TensorBuffer"]


Self = TypeVar("Self", bound="TensorBuffer")


class ResetStrategy(Enum):
    """Strategy of adding to a full buffer."""

    ERROR = "error"
    """Raise RuntimeError."""
    RECURRENT = "recurrent"
    """Overwrite the oldest step (ring buffer)."""
    AUTO = "auto"
    """Forget all steps first."""


class TensorBuffer(ABC):
    """Base of tensor buffers: steps of `num_envs` environments, `buffer_size` of each.

    Positions are counted on the host, so that no call waits for a CUDA device to know where it is.
    """

    STEP: tuple[str, ...]
    """The fields that are not extra ones."""

    def __init__(
        self,
        buffer_size: int,
        num_envs: int,
        stats_tracker: StatsTracker | None,
        *,
        device: torch.device | str,
        store_device: torch.device | str | None,
        reset_strategy: ResetStrategy,
        fields: Fields,
        seed: int,
        generator: torch.Generator | None,
    ) -> None:
        self.buffer_size = check_count("buffer_size", buffer_size, 1)
        self.num_envs = check_count("num_envs", num_envs, 1)
        self.device = full_device(device)
        self.store_device = self.device if store_device is None else full_device(store_device)
        if stats_tracker is not None and stats_tracker.num_envs != num_envs:
            raise ValueError(
                f"stats_tracker must have num_envs {num_envs}, got {stats_tracker.num_envs}"
            )
        self.stats_tracker = stats_tracker
        self.reset_strategy = ResetStrategy(reset_strategy)
        self.fields = fields
        self._extra_names = fields.trees.keys() - set(self.STEP)
        self._never = torch.zeros(self.num_envs, dtype=torch.bool, device=self.store_device)
        self.generator = self._own_generator(seed) if generator is None else generator
        if self.generator.device.type != self.store_device.type:
            raise ValueError(
                f"generator must be on the storage device {self.store_device}, "
                f"got {self.generator.device}"
            )
        self._steps = 0

    def _own_generator(self, seed: int) -> torch.Generator:
        check_count("seed", seed, 0, 2**63 - 1)
        return torch.Generator(self.store_device).manual_seed(seed)

    def __len__(self) -> int:
        return self.current_size

    @property
    def capacity(self) -> int:
        """Steps per environment the buffer keeps at most."""
        return self.buffer_size

    @property
    def total_capacity(self) -> int:
        """Steps over all environments the buffer keeps at most."""
        return self.buffer_size * self.num_envs

    @property
    def current_size(self) -> int:
        """Steps per environment in the buffer."""
        return min(self._steps, self.buffer_size)

    @property
    def total_current_size(self) -> int:
        """Steps over all environments in the buffer."""
        return self.current_size * self.num_envs

    @property
    def full(self) -> bool:
        """True if the next step meets the `reset_strategy`."""
        return self._steps >= self.buffer_size

    @property
    def position(self) -> int:
        """The slot of the next step."""
        return self._steps % self.buffer_size

    def reset(self, reset_stats: bool = False) -> None:
        """Forget all steps, and with `reset_stats` also the statistics."""
        self._clear()
        self._steps = 0
        if reset_stats and self.stats_tracker is not None:
            self.stats_tracker.reset()

    @abstractmethod
    def _clear(self) -> None:
        """Forget what is stored."""

    def _make_room(self) -> int:
        """The slot for a step, after the `reset_strategy` if the buffer is full."""
        if self.full:
            if self.reset_strategy is ResetStrategy.ERROR:
                raise RuntimeError(
                    f"the buffer is full with {self.buffer_size} steps: call reset() first"
                )
            if self.reset_strategy is ResetStrategy.AUTO:
                self.reset()
        return self.position

    def _split_names(self, given: Mapping[str, Any]) -> tuple[dict[str, Nested], dict[str, Any]]:
        """Names that `add` does not know itself: extra fields, and metrics of the tracker."""
        if not given and not self._extra_names:
            return {}, {}
        metrics = () if self.stats_tracker is None else self.stats_tracker.extra_metrics_keys
        extras = {name: given[name] for name in given if name in self.fields.trees}
        infos = {name: given[name] for name in given if name in metrics}
        unknown = given.keys() - extras.keys() - infos.keys()
        if unknown:
            raise TypeError(f"add() got unknown names {sorted(unknown)}")
        missing = self._extra_names - extras.keys()
        if missing:
            raise TypeError(f"add() needs the extra fields {sorted(missing)}")
        return extras, infos

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything, as tensors."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""

    def _state(self, rows: list[Tensor], steps: int) -> dict[str, Any]:
        """The state of a buffer with these rows [size * num_envs, ...] after so many steps."""
        return {
            "fields": {
                name: row.reshape(-1, self.num_envs, *row.shape[1:])
                for name, row in zip(self.fields.names, rows, strict=True)
            },
            "steps": steps,
            "generator": self.generator.get_state(),
        }

    def _checked_state(self, state: Mapping[str, Any]) -> tuple[list[Tensor], int]:
        """The columns [steps, num_envs, ...] of a state, and the steps ever added."""
        given, steps = state["fields"], check_count("steps", state["steps"], 0)
        if given.keys() != set(self.fields.names):
            raise ValueError(f"fields must be {sorted(self.fields.names)}, got {sorted(given)}")
        size, columns = min(steps, self.buffer_size), []
        for name, leaf in zip(self.fields.names, self.fields.leaves, strict=True):
            column = torch.as_tensor(given[name])
            expected = (size, self.num_envs, *leaf.shape)
            if tuple(column.shape) != expected or column.dtype != leaf.dtype:
                raise ValueError(
                    f"{name} must have shape {expected} and dtype {leaf.dtype}, "
                    f"got {tuple(column.shape)} and {column.dtype}"
                )
            columns.append(column)
        return columns, steps

    def _load_generator(self, state: Any) -> None:
        """Set the generator's state, unless it is that of a generator of another kind."""
        tensor = torch.as_tensor(state).cpu()
        if tensor.shape == self.generator.get_state().shape:
            self.generator.set_state(tensor)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the buffer to a file, which is the old one or the new one at any time.

        Raises:
            SharpwaveIOError: The file cannot be written.
        """
        save(self, path)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], **options: Any) -> Self:
        """The buffer that `save` wrote; it goes on where the saved one was.

        Args:
            path: The file.
            **options: Arguments of the class to change, such as the devices or the tracker.

        Raises:
            SharpwaveIOError: The file is not there, is damaged, or holds something else.
        """
        return load(cls, path, options)

    def _options(self) -> dict[str, Any]:
        """The arguments of the class that plain values can say, without the fields."""
        return {
            "buffer_size": self.buffer_size,
            "num_envs": self.num_envs,
            "reset_strategy": self.reset_strategy.value,
        }

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} of {self.buffer_size} steps × {self.num_envs} "
            f"environments on {self.store_device}: {', '.join(self.fields.trees)})"
        )


def full_device(device: torch.device | str) -> torch.device:
    """The device with its number, so that equal devices compare equal."""
    found = torch.device(device)
    if str(found) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return found


BufferT = TypeVar("BufferT", bound="TensorBuffer")

_KIND = "tensor buffer"


def save(buffer: Any, path: str | os.PathLike[str]) -> None:
    """Write a buffer to a file."""
    trees = buffer.fields.trees
    header = {
        "kind": _KIND,
        "class": type(buffer).__name__,
        "options": buffer._options(),
        "obs": _to_json(trees["obs"]),
        "action": _to_json(trees["action"]),
        "extras": {name: _to_json(trees[name]) for name in trees if name not in buffer.STEP},
    }
    state = buffer.state_dict()
    columns = {name: column.cpu() for name, column in state["fields"].items()}
    state["fields"] = {name: _as_bytes(column) for name, column in columns.items()}
    write_checkpoint(path, header, state)


def load(cls: type[BufferT], path: str | os.PathLike[str], options: Mapping[str, Any]) -> BufferT:
    """The buffer that `save` wrote, with some of its arguments changed."""
    header, state = read_checkpoint(path)
    if header.get("kind") != _KIND or header.get("class") != cls.__name__:
        held = header.get("class") or "checkpoint of something else"
        raise SharpwaveIOError(f"{path} holds a {held}, not a {cls.__name__}")
    try:
        saved = dict(header["options"])
        saved["reset_strategy"] = ResetStrategy(saved["reset_strategy"])
        for name in ("obs", "action"):
            tree = _from_json(header[name])
            saved[f"{name}_shape"] = _each(tree, "shape")
            saved[f"{name}_dtype"] = _each(tree, "dtype")
        saved["extra_fields"] = {name: _from_json(tree) for name, tree in header["extras"].items()}
        make: Any = cls
        buffer: Any = make(**{**saved, **options})
        leaves = dict(zip(buffer.fields.names, buffer.fields.leaves, strict=True))
        state["fields"] = {
            name: torch.tensor(column).view(leaves[name].dtype)
            for name, column in state["fields"].items()
        }
        buffer.load_state_dict(_tensors(state))
    except (KeyError, ValueError, TypeError) as error:
        raise SharpwaveIOError(f"{path} does not fit: {error}") from error
    loaded: BufferT = buffer
    return loaded


def _as_bytes(column: torch.Tensor) -> torch.Tensor:
    """The column as integers of the same size, since NumPy lacks some dtypes."""
    if column.dtype.itemsize > 8:
        raise TypeError(f"fields of dtype {column.dtype} cannot be saved")
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return column.view(sizes[column.dtype.itemsize])


def _tensors(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _tensors(value) for key, value in state.items()}
    return (
        state
        if isinstance(state, torch.Tensor) or not hasattr(state, "dtype")
        else torch.tensor(state)
    )


def _to_json(tree: Nested) -> Any:
    if isinstance(tree, TensorField):
        return [str(tree.dtype).removeprefix("torch."), list(tree.shape)]
    return {key: _to_json(inner) for key, inner in tree.items()}


def _from_json(saved: Any) -> Nested:
    if isinstance(saved, dict):
        return {key: _from_json(inner) for key, inner in saved.items()}
    dtype = vars(torch).get(saved[0])  # nothing is imported for a name
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{saved[0]!r} is not a dtype")  # noqa: TRY004
    return TensorField(dtype, tuple(saved[1]))


def _each(tree: Nested, attribute: str) -> Any:
    if isinstance(tree, TensorField):
        return getattr(tree, attribute)
    return {key: _each(inner, attribute) for key, inner in tree.items()}
