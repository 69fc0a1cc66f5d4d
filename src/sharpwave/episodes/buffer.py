"""Whole episodes in a folder that outlives the process, a step at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from sharpwave import _native
from sharpwave.core.flags import flag
from sharpwave.episodes.bulk import all_data, patches
from sharpwave.episodes.compression import as_codecs
from sharpwave.episodes.format_methods import FormatMethods
from sharpwave.episodes.layout import DURABILITIES, describe, differences, schema_of
from sharpwave.episodes.loaders import LoadsEpisodes
from sharpwave.episodes.open_folder import OpenFolder
from sharpwave.episodes.table import EpisodeTable, LostEpisodes, read_table
from sharpwave.errors import SharpwaveIOError
from sharpwave.formats.spec import EpisodeSchema
from sharpwave.storage.folder import StoreFolder, is_store

__all__ = ["EpisodeBuffer"]

KIND = "episodes"

Self = TypeVar("Self", bound="EpisodeBuffer")


class EpisodeBuffer(LoadsEpisodes, FormatMethods, OpenFolder):
    """Episodes on disk: steps are committed one by one, episodes are read back as batches.

    A step is safe against the death of the process when `store` returns. An episode that is cut by
    an exception or by the end of its process keeps its steps, is marked as aborted, and is left out
    unless asked for. One process writes to a folder at a time; any number read it meanwhile. Of
    several buffers in this process each may write to it between the episodes of the others.

    Args:
        folder: Where the episodes are. A folder with episodes in it is opened and continued; its
            schema and limits must be equal to those given.
        max_episodes: Episodes that the buffer holds.
        max_timesteps: Steps that an episode may have. Shorter ones take no more space than they
            need.
        fields: Fields of a step by name: `"float"`, `("float", shape)` or `("float", shape,
            default)`, with the types int (int32), float (float32), bool, and any NumPy dtype; a
            `Field`; or a dict of these for nested values.
        meta_fields: Fields of an episode likewise.
        circular: When full, the oldest episode makes room for the newest. Otherwise a full buffer
            refuses more.
        overwrite: Delete the episodes that are in the folder. Buffers of this process that have it
            open are closed: what is asked of them later raises. A folder that holds something else,
            or that another process writes to, is refused.
        read_only: Open existing episodes, and never write.
        durability: "process": what was stored outlives the death of the process, and what was
            flushed the loss of power. "power": every step waits for the disk and outlives the loss
            of power, too.
        codecs: How to compress fields of steps, by name, or all of them: "zstd", "lz4",
            "delta+zstd" or "delta+lz4". Rows are compressed when a chunk of them is full, and
            cannot be updated then. Counts for a new folder only.

    Raises:
        ValueError: The folder has episodes of another schema or other limits.
        FolderLockedError: Somebody writes to the folder.
        SharpwaveIOError: The folder holds something else, or is damaged.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> fields = {"state": ("float", 3), "action": "int", "reward": "float"}
        >>> buffer = EpisodeBuffer(folder, 100, 500, fields, meta_fields={"task": "int"})
        >>> with buffer.one_episode(task=1):
        ...     for t in range(5):
        ...         memory = buffer.store(state=[t, t, t], action=t, reward=1.0)
        >>> buffer.num_episodes
        1
        >>> table = buffer.episodes()
        >>> buffer.gather(table.starts + 2)["state"]
        array([[2., 2., 2.]], dtype=float32)
        >>> buffer.close()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        max_episodes: int,
        max_timesteps: int,
        fields: Mapping[str, Any],
        meta_fields: Mapping[str, Any] | None = None,
        circular: bool = False,
        overwrite: bool = False,
        read_only: bool = False,
        *,
        durability: str = "process",
        codecs: Mapping[str, str] | str | None = None,
    ) -> None:
        if read_only and overwrite:
            raise ValueError("read_only and overwrite must not both be True")
        _check_durability(durability)
        schema = EpisodeSchema(fields, meta_fields)
        description = describe(
            schema,
            max_episodes=_positive("max_episodes", max_episodes),
            max_timesteps=_positive("max_timesteps", max_timesteps),
            circular=flag("circular", circular),
            durability=durability,
            codecs=as_codecs(codecs, schema.fields),
        )
        if read_only or (is_store(folder) and not overwrite):
            opened = StoreFolder.open(folder, KIND)
            schema_of(opened)
            different = differences(opened.header, description)
            if different:
                raise ValueError(
                    f"{opened.path} holds episodes of another kind than asked for: "
                    + "; ".join(different)
                )
            self._start(opened, read_only=read_only, write=not read_only, durability=durability)
        else:
            made = StoreFolder.create(
                folder, KIND, description, _native.EPISODE_STATE_WORDS, overwrite=overwrite
            )
            self._start(made, read_only=False, write=True, durability=durability)

    @classmethod
    def from_folder(
        cls: type[Self],
        folder: str | os.PathLike[str],
        read_only: bool = False,
        *,
        verify: bool = False,
        repair: bool = False,
        durability: str | None = None,
    ) -> Self:
        """The episodes in a folder.

        They are opened for reading; the first write makes this the writer of the folder, if nobody
        else is.

        Args:
            folder: Path of the folder.
            read_only: Never write.
            verify: Compare all data with its checksums. Without it only the sizes of files are
                looked at.
            repair: Go on without the episodes that damaged files are part of; `lost` tells which.
                This makes the handle the writer of the folder, unless `read_only` is True: then the
                files stay as they are, and the episodes are only left out.
            durability: As for the constructor; by default what the folder was made with.

        Raises:
            SharpwaveIOError: There are none, or they are damaged; the message names the file.
            FolderLockedError: Somebody writes to the folder that is to be repaired.
        """
        if durability is not None:
            _check_durability(durability)
        opened = StoreFolder.open(folder, KIND, repair=repair)
        schema_of(opened)
        buffer = cls.__new__(cls)
        chosen = durability or opened.header["options"]["durability"]
        buffer._start(
            opened,
            read_only=read_only,
            write=repair and not read_only,
            durability=chosen,
            repair=repair,
        )
        if verify and not repair:
            buffer.verify()
        return buffer

    @property
    def max_episodes(self) -> int:
        """Episodes that the buffer holds."""
        return int(self._folder.header["options"]["max_episodes"])

    @property
    def max_timesteps(self) -> int:
        """Steps that an episode may have."""
        return int(self._folder.header["options"]["max_timesteps"])

    @property
    def circular(self) -> bool:
        """True if the oldest episodes make room for the newest."""
        return bool(self._folder.header["options"]["circular"])

    @property
    def num_episodes(self) -> int:
        """Complete episodes, also those that another process has stored since."""
        self.refresh()
        return self._engine.n_complete

    def __len__(self) -> int:
        return self.num_episodes

    @property
    def timestep_index(self) -> int:
        """Steps of the open episode."""
        return self._engine.open_length

    @contextlib.contextmanager
    def one_episode(self, **meta: Any) -> Iterator[dict[str, Any]]:
        """An episode: steps stored inside the block belong to it.

        Args:
            **meta: Fields of the episode; those not given take their defaults.

        Yields:
            A dict for fields of the episode that are known at its end.

        An exception inside the block leaves the steps as an aborted episode. A block without a step
        leaves nothing.

        Raises:
            ValueError: The buffer is full.
            RuntimeError: An episode is open already.
        """
        final: dict[str, Any] = {}
        with self._aborting():
            self._begin(**meta)
            yield final
            self._finish(**final)
            self._compress()

    @contextlib.contextmanager
    def batched_episode(self, batch_size: int, **meta: Any) -> Iterator[None]:
        """Episodes side by side: steps stored with `store_batch` inside the block belong to them.

        Their steps are safe against the death of the process one by one, like those of a single
        episode. Each episode has the steps it was active in, so that lengths may differ.

        Args:
            batch_size: Number of episodes.
            **meta: Fields of the episodes, each [batch_size, ...].

        An exception inside the block leaves the steps as aborted episodes.

        Raises:
            ValueError: The buffer has not room for so many.
            RuntimeError: An episode is open already.
        """
        with self._aborting():
            self._begin_batch(batch_size, **meta)
            yield
            self._engine.complete()
            self._compress()

    @contextlib.contextmanager
    def _aborting(self) -> Iterator[None]:
        """Abort what was begun inside, whatever ends it: Ctrl-C may come at any moment."""
        others = self._engine.has_open
        try:
            yield
        except BaseException:
            if not others and not self._is_closed and self._engine.has_open:
                self._engine.abort()
            raise

    def advance_episode(self, batch_size: int | None = None) -> None:
        """End the open episode, or the open batch of episodes.

        Does nothing when no step was stored.

        Args:
            batch_size: The episodes of the batch; only checked.

        Raises:
            ValueError: The open batch has another size.
        """
        engine = self._engine
        if not engine.has_open:
            return
        if batch_size is not None and batch_size != max(engine.n_lanes, 1):
            raise ValueError(
                f"batch_size must be {max(engine.n_lanes, 1)} like the open one, got {batch_size}"
            )
        engine.complete()
        self._compress()

    def store_episode(self, **fields: Any) -> None:  # noqa: D102 - documented in the native type
        super().store_episode(**fields)
        self._compress()

    def update(self, indices: Any = None, **data: Any) -> None:
        """Write over fields of stored episodes, all of them or, should the process die, none.

        Args:
            indices: Positions in `episodes()`: one, several, a slice, or None for all.
            **data: Fields of steps as [E, T, ...] for the first T steps of each episode, without
                the first axis for a single position, or a number for all steps. Episodes of
                different lengths are padded with zeros to the longest, as by `get_all_data`. Fields
                of episodes as [E, ...] or a number.

        Raises:
            TypeError, ValueError: As for store; also for values beyond the end of an episode.
            IndexError: For a position that does not exist.
        """
        self._writer()
        self._update(patches(self, indices, data))

    def get_all_data(
        self,
        fields: Sequence[str] | None = None,
        meta_fields: Sequence[str] | None = None,
        device: Any = None,
        *,
        as_numpy: bool = False,
    ) -> dict[str, Any]:
        """All complete episodes at once, padded with zeros to the longest.

        Args:
            fields: Names of fields of steps; with neither argument given, all.
            meta_fields: Names of fields of episodes, "episode_lens" among them.
            device: Device of the tensors.
            as_numpy: Arrays instead of torch tensors.

        Returns:
            Fields of steps as [E, longest, ...] and fields of episodes as [E, ...], by name; empty
            when there are no episodes.
        """
        return all_data(self, fields, meta_fields, device, as_numpy=as_numpy)

    def episodes(self, aborted: bool = False) -> EpisodeTable:
        """The finished episodes, oldest first.

        Args:
            aborted: Give aborted ones, too.
        """
        self.refresh()
        return read_table(self._engine, self.schema.meta_fields, aborted=aborted)

    def refresh(self) -> None:
        """See what another process has stored since. Only handles for reading need it."""
        self._engine.refresh()

    def clear(self) -> None:
        """Forget all episodes.

        Raises:
            RuntimeError: An episode is open.
        """
        self._writer().clear()

    def verify(self) -> None:
        """Compare all data with its checksums.

        Raises:
            SharpwaveIOError: Something is damaged; the message names the files.
        """
        damage = LostEpisodes.of(self._engine.verify())
        coded = [] if self._compression is None else list(self._compression.damaged())
        if damage or coded:
            what = "; ".join([str(damage)] * bool(damage) + [text for _, text in coded])
            raise SharpwaveIOError(
                f"{self.folder} is damaged: {what}; from_folder(..., repair=True) goes on without"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        self._engine  # noqa: B018 - raises where the folder may hold other episodes by now
        return _open_read_only, (type(self), str(self.folder.absolute()))

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.num_episodes} episodes"
        return f"{type(self).__name__}({str(self.folder)!r}, {state})"


def _open_read_only(cls: type[EpisodeBuffer], folder: str) -> EpisodeBuffer:
    return cls.from_folder(folder, read_only=True)


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not 1 <= value < 2**48:
        raise ValueError(f"{name} must be from 1 to 2**48, got {value}")
    return int(value)


def _check_durability(durability: str) -> None:
    if durability not in DURABILITIES:
        raise ValueError(f"durability must be one of {DURABILITIES}, got {durability!r}")
