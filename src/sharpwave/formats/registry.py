"""The formats by name."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from sharpwave.core.suggest import did_you_mean
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.stream import Episode, EpisodeStream, concatenated
from sharpwave.storage.files import reading
from sharpwave.types import PathLike


@dataclass(frozen=True)
class Format:
    """A format of episodes on disk.

    Attributes:
        name: Its name.
        summary: Its description in a few words.
        suffixes: Suffixes of its files; none where it is a folder.
        can_write: True if it can be written, and not only read.
    """

    name: str
    summary: str
    module: str = field(repr=False)
    suffixes: tuple[str, ...] = ()
    can_write: bool = True
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def _function(self, name: str) -> Callable[..., Any]:
        module = import_module(f"sharpwave.{self.module}")
        function: Callable[..., Any] = getattr(module, name)
        return function

    def detect(self, path: PathLike) -> bool:
        """Return whether a file or folder is of this format."""
        with contextlib.suppress(OSError, ValueError, RecursionError, TypeError):
            return bool(self._function("detect")(Path(path), **self.options))
        return False

    def read(self, path: PathLike, **options: Any) -> EpisodeStream:
        """The episodes in a file or folder."""
        read = self._function("read")
        inspect.signature(read).bind(path, **self.options, **options)  # a wrong option is no damage
        with reading(_origin(path)):
            stream: EpisodeStream = read(path, **self.options, **options)
        return replace(stream, episodes=partial(_guarded, stream))

    def write(self, stream: EpisodeStream, path: PathLike, **options: Any) -> None:
        """Write episodes to a file or folder."""
        if not self.can_write:
            raise ValueError(f"{self.name} can be read and not written")
        self._function("write")(stream, path, **self.options, **options)


def _origin(source: Any) -> str:
    """Name, in error messages, of a path, an id or a dataset that another library opened."""
    return str(source) if isinstance(source, str | os.PathLike) else type(source).__name__


def _guarded(stream: EpisodeStream) -> Iterator[Episode]:
    """The episodes of a stream; what goes wrong with one names where they come from."""
    with reading(stream.origin):
        yield from stream.episodes()


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        Format("episodes", "a folder of EpisodeBuffer", "episodes.folder_format"),
        Format(
            "memmap",
            "a folder of memmap-replay-buffer",
            "formats.memmap_folder",
            can_write=False,
        ),
        Format("lerobot", "a LeRobot dataset of version 3", "formats.lerobot"),
        Format("minari", "a Minari dataset", "formats.minari"),
        Format("hdf5", "HDF5 in the layout of D4RL", "formats.hdf5", (".h5", ".hdf5", ".hdf")),
        Format("npz", "NumPy's arrays in a zip file", "formats.npz", (".npz",)),
        Format(
            "parquet",
            "tables in Parquet",
            "formats.arrow",
            (".parquet",),
            options={"kind": "parquet"},
        ),
        Format(
            "arrow",
            "tables in Arrow's file format",
            "formats.arrow",
            (".arrow",),
            options={"kind": "arrow"},
        ),
    )
}
"""The formats by name, those that are told most surely first."""


def format_named(name: str) -> Format:
    """A format by its name.

    Raises:
        ValueError: There is none; the nearest is named.
    """
    if name not in FORMATS:
        raise ValueError(
            f"unknown format {name!r}{did_you_mean(name, FORMATS)} (there are {', '.join(FORMATS)})"
        )
    return FORMATS[name]


def format_of(path: PathLike) -> Format:
    """The format of a file or folder, by its content.

    Raises:
        SharpwaveIOError: There is nothing, or nothing that is known.
    """
    if not Path(path).exists():
        raise SharpwaveIOError(errno.ENOENT, f"there is no {path}")
    for each in FORMATS.values():
        if each.detect(path):
            return each
    raise SharpwaveIOError(f"{path} is of no known format (there are {', '.join(FORMATS)})")


def format_to_write(path: PathLike) -> Format:
    """The format by the suffix of a path: a folder of `EpisodeBuffer` where it has none."""
    suffix = Path(path).suffix.lower()
    for each in FORMATS.values():
        if suffix and suffix in each.suffixes:
            return each
    return FORMATS["episodes"]


def read_episodes(path: PathLike, format: str | None = None, **options: Any) -> EpisodeStream:
    """The episodes in a file or folder of any format.

    Args:
        path: Path of the file or folder.
        format: Its name, where the content does not tell.
        **options: Options of the format's `read`.

    Example:
        >>> import numpy as np
        >>> ends = np.arange(6) % 3 == 2
        >>> np.savez("steps.npz", observations=np.eye(6), actions=np.arange(6), terminals=ends)
        >>> episodes = read_episodes("steps.npz")
        >>> episodes.lengths
        array([3, 3])
        >>> list(episodes.schema.fields)
        ['obs', 'action', 'terminated']
    """
    chosen = format_of(path) if format is None else format_named(format)
    return chosen.read(path, **options)


def write_episodes(
    stream: EpisodeStream, path: PathLike, format: str | None = None, **options: Any
) -> None:
    """Write episodes to a file or folder of any format.

    Args:
        stream: The episodes.
        path: Path of the file or folder to write.
        format: Its name, where the suffix does not tell.
        **options: Options of the format's `write`.
    """
    chosen = format_to_write(path) if format is None else format_named(format)
    chosen.write(stream, path, **options)


def convert(
    source: PathLike,
    target: PathLike,
    *,
    from_format: str | None = None,
    to_format: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> EpisodeStream:
    """Write the episodes of one file or folder to another.

    Args:
        source: Path of the file or folder to read.
        target: Path of the file or folder to write.
        from_format: The name of the source's format, where the content does not tell.
        to_format: The name of the target's format, where the suffix does not tell.
        overwrite: Replace what is there, if it is of the same format.
        **options: Options of the target's format.

    Returns:
        What was read.
    """
    stream = read_episodes(source, from_format)
    write_episodes(stream, target, to_format, overwrite=overwrite, **options)
    return stream


def merge(
    sources: Sequence[PathLike],
    target: PathLike,
    *,
    to_format: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> EpisodeStream:
    """Write the episodes of several files or folders to one, one after another.

    Args:
        sources: At least one, each of any format, all with the same fields.
        target: Path of the file or folder to write.
        to_format: The name of the target's format, where the suffix does not tell.
        overwrite: Replace what is there, if it is of the same format.
        **options: Options of the target's format.

    Returns:
        What was read.

    Raises:
        ValueError: Their fields differ; the message says where.
    """
    stream = concatenated([read_episodes(source) for source in sources])
    write_episodes(stream, target, to_format, overwrite=overwrite, **options)
    return stream
