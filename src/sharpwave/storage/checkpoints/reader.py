"""Reader of checkpoints: header and names at once, tensors when they are asked for."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sharpwave.errors import SharpwaveIOError
from sharpwave.storage.checkpoints.container import Entry, TensorFile, naming
from sharpwave.storage.checkpoints.parts import parts_in
from sharpwave.storage.checkpoints.tensors import RawTensor, StoredArray, is_tensor, to_tensor
from sharpwave.storage.checkpoints.ties import Alias
from sharpwave.storage.checkpoints.trees import from_json
from sharpwave.storage.checkpoints.writer import FORMAT, PART_FORMAT

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

__all__ = ["CheckpointReader", "read_checkpoint", "read_header"]

VERSIONS = (1, 2)


class CheckpointReader:
    """A checkpoint, open to read: its tensors are read one by one, when they are asked for.

    Names are dotted, as the tensors lie in the state: `state.learner.networks.policy.0.weight`.

    Args:
        path: The checkpoint.

    Attributes:
        header: Description in plain values: algorithm, config, environment.

    Raises:
        SharpwaveIOError: There is no checkpoint of a known version, it is damaged, or a part of it
            is missing. Damage of tensors is found when they are read.

    Example:
        >>> import sharpwave as sw
        >>> sw.PPO("CartPole-v1", hidden=(8,), seed=0).save("ppo.safetensors")
        >>> with CheckpointReader("ppo.safetensors") as checkpoint:
        ...     name = "state.learner.networks.policy.actor.0.weight"
        ...     checkpoint.shape(name), checkpoint.dtype(name), checkpoint.read(name).shape
        ((8, 4), 'float32', (8, 4))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._files: list[TensorFile] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        while True:
            try:
                index = TensorFile(self.path)
            except OSError as error:
                if isinstance(error, SharpwaveIOError):
                    raise
                reason = "no checkpoint here" if error.errno == errno.ENOENT else error.strerror
                raise SharpwaveIOError(error.errno, f"{self.path}: {reason}") from error
            self._files = [index]
            self._document = _checked(self.path, index.document)
            with naming(self.path):
                try:
                    self._open_parts()
                    break
                except FileNotFoundError as error:
                    # Another process may have replaced the checkpoint, and removed its parts.
                    if _identity(self.path) == index.identity:
                        raise SharpwaveIOError(
                            f"{self.path}: its part {error.filename} is missing"
                        ) from error
            self.close()
        self.header: dict[str, Any] = dict(self._document["header"])
        with naming(self.path):
            self._find_tensors()

    def _open_parts(self) -> None:
        parts = self._document.get("parts")
        if parts is None:
            return
        paths = parts_in(self.path, self._document)
        for path, checksum in zip(paths, parts["checksums"], strict=True):
            part = TensorFile(path)
            self._files.append(part)
            if part.checksum != checksum:
                raise SharpwaveIOError(f"{path}: damaged, or not a part of {self.path}")

    def _find_tensors(self) -> None:
        self._file_of: dict[str, TensorFile] = {}
        for file in self._files:
            for name in file.entries:
                if name in self._file_of:
                    raise ValueError(f"{name!r:.200} is there twice")
                self._file_of[name] = file
        shards = self._document.get("shards", {})
        self._shards = {x: _checked_shards(self._file_of, x, names) for x, names in shards.items()}
        self._aliases: dict[str, Alias] = {}
        for name, saved in self._document.get("aliases", {}).items():
            alias = Alias.from_json(saved)
            base = self._file_of.get(alias.of)
            fits = base is not None and alias.fits(base.entries[alias.of].shape)
            if not fits or name in self._file_of:
                raise ValueError(f"{name!r:.200} cannot stand for {alias.of!r:.200}")
            self._aliases[name] = alias

    def __repr__(self) -> str:
        return f"CheckpointReader({str(self.path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files = []

    # Tensors

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        shards = {name for names in self._shards.values() for name in names}
        return (*(x for x in self._file_of if x not in shards), *self._shards, *self._aliases)

    @property
    def aliases(self) -> dict[str, str]:
        """Names of tied tensors, each with the name that the file has it under."""
        return {name: alias.of for name, alias in self._aliases.items()}

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        alias = self._aliases.get(name)
        if name in self._shards:
            rows = sum(self._entry(one).shape[0] for one in self._shards[name])
            return (rows, *self._entry(self._shards[name][0]).shape[1:])
        if alias is None:
            return self._entry(name).shape
        return tuple(alias.shape[axis] for axis in alias.axes)

    def dtype(self, name: str) -> str:
        """Name of a tensor's dtype, as PyTorch has it."""
        return self._entry(self._stored(name)).kind.name

    def read(self, name: str) -> StoredArray:
        """One tensor, as an array; as its words where NumPy lacks the dtype.

        Raises:
            KeyError: There is none of this name.
            SharpwaveIOError: It is damaged.
        """
        return self._view(name, self._words(name))

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor, of the dtype that was saved.

        Raises:
            KeyError: There is none of this name.
            SharpwaveIOError: It is damaged.
        """
        return to_tensor(self.read(name))

    def copy_to(self, name: str, target: Any) -> None:
        """Read one tensor into memory that is there, such as a parameter, little at a time.

        Args:
            name: Name of the tensor.
            target: An array or a tensor of the same shape, on any device; other dtypes are cast.

        Raises:
            KeyError: There is none of this name.
            ValueError: The shape is another one.
            SharpwaveIOError: It is damaged; the target has not changed.
        """
        shape = self.shape(name)
        if tuple(target.shape) != shape:
            raise ValueError(f"target must have shape {shape} like {name}, got {target.shape}")
        target = target.detach() if is_tensor(target) else target
        contiguous = target.is_contiguous() if is_tensor(target) else target.flags.c_contiguous
        if not contiguous or name in self._aliases or name in self._shards:
            _assign(target, self.read(name))
            return
        file = self._file_of[name]
        file.verify(name)
        flat, done = target.reshape(-1), 0
        for piece in file.read_pieces(name):
            _assign(flat[done : done + len(piece)], file.entries[name].kind.array(piece))
            done += len(piece)

    def state(self) -> Any:
        """The whole state, read into memory; tied tensors share theirs."""
        read: dict[str, npt.NDArray[Any]] = {}

        def leaf(name: str) -> StoredArray:
            stored = self._stored(name)
            if stored not in read:
                read[stored] = self._words(name)
            return self._view(name, read[stored])

        with naming(self.path):
            return from_json(self._document["state"], leaf)

    def verify(self) -> None:
        """Compare the checksums of all tensors.

        Raises:
            SharpwaveIOError: One does not fit.
        """
        for file in self._files:
            file.verify()

    def _stored(self, name: str) -> str:
        """The name that the file has a tensor under; of one in shards that of the first."""
        alias = self._aliases.get(name)
        return self._shards.get(name, [name])[0] if alias is None else alias.of

    def _words(self, name: str) -> npt.NDArray[Any]:
        stored = self._shards.get(name, [self._stored(name)])
        found = [self._file_of[one].read(one) for one in stored]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _entry(self, name: str) -> Entry:
        return self._file_of[name].entries[name]

    def _view(self, name: str, words: npt.NDArray[Any]) -> StoredArray:
        alias = self._aliases.get(name)
        kind = self._entry(self._stored(name)).kind
        return kind.array(words if alias is None else alias.of_words(words))


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a checkpoint: algorithm, config, environment, versions.

    Raises:
        SharpwaveIOError: There is no checkpoint of a known version at `path`, or it is damaged.
    """
    with CheckpointReader(path) as checkpoint:
        checkpoint.verify()
        return checkpoint.header


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any]:
    """(header, state) of a checkpoint.

    Arrays and tensors come back as arrays, and as `RawTensor` where NumPy lacks their dtype.

    Raises:
        SharpwaveIOError: There is no checkpoint of a known version at `path`, or it is damaged.
    """
    with CheckpointReader(path) as checkpoint:
        return checkpoint.header, checkpoint.state()


def _checked_shards(files: dict[str, TensorFile], name: str, shards: Any) -> list[str]:
    """The names of what a tensor is cut into, if they are there and fit."""
    entries = [files[one].entries[one] for one in shards]
    kinds = {(entry.kind.name, entry.shape[1:]) for entry in entries}
    if len(kinds) != 1 or not all(entry.shape for entry in entries) or name in files:
        raise ValueError(f"the shards of {name!r:.200} do not fit together")
    return list(shards)


def _checked(path: Path, document: Any) -> dict[str, Any]:
    """The document, if it is one of a checkpoint."""
    if isinstance(document, dict) and document.get("format") == PART_FORMAT:
        raise SharpwaveIOError(f"{path}: a part of a checkpoint, not the checkpoint")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SharpwaveIOError(f"{path}: a safetensors file, but not a checkpoint of sharpwave")
    version = document.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise SharpwaveIOError(
            f"{path}: checkpoint version {version!r:.40}, this library reads {VERSIONS[-1]}"
        )
    if not isinstance(document.get("header"), dict):
        raise SharpwaveIOError(f"{path}: damaged checkpoint: it does not say what it holds")
    return document


def _assign(target: Any, array: StoredArray) -> None:
    if is_tensor(target):
        target.copy_(to_tensor(array))
    else:
        target[...] = array.tensor().float().numpy() if isinstance(array, RawTensor) else array


def _identity(path: Path) -> Any:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
