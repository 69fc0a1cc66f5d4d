"""The methods of `EpisodeBuffer` that read and write other formats."""

from __future__ import annotations

from typing import Any, TypeVar

from sharpwave.types import PathLike

Self = TypeVar("Self", bound="FormatMethods")


class FormatMethods:
    """Reading episodes from other formats and writing them to others.

    Every `from_...` writes the episodes to `folder`, which appears whole or not at all, and opens
    it. Every `to_...` writes the complete episodes of the buffer. One episode is in memory at a
    time. What a format cannot carry is named in a `NotCarriedWarning`; the module of each format
    says what that may be. Options of `from_...` that are not the format's are those of
    `EpisodeBuffer`: `max_episodes` and `max_timesteps` (by default what the episodes need),
    `circular`, `overwrite`, `durability`.
    """

    @classmethod
    def from_minari(cls: type[Self], dataset: Any, folder: PathLike, **options: Any) -> Self:
        """The episodes of a local Minari dataset: its id, its folder or a `MinariDataset`."""
        return cls._import("minari", dataset, folder, options)

    def to_minari(self, dataset: PathLike, **options: Any) -> None:
        """Write a Minari dataset, by its id or to a folder (`sharpwave.formats.minari.write`)."""
        self._export("minari", dataset, options)

    @classmethod
    def from_hdf5(cls: type[Self], path: PathLike, folder: PathLike, **options: Any) -> Self:
        """The episodes of an HDF5 file in the layout of D4RL; `keep_next_obs` keeps `next_obs`."""
        return cls._import("hdf5", path, folder, options, ("keep_next_obs",))

    def to_hdf5(self, path: PathLike, **options: Any) -> None:
        """Write an HDF5 file in the layout of D4RL: see `sharpwave.formats.hdf5.write`."""
        self._export("hdf5", path, options)

    @classmethod
    def from_npz(cls: type[Self], path: PathLike, folder: PathLike, **options: Any) -> Self:
        """The episodes of an .npz file; `keep_next_obs` keeps `next_obs` as a field.

        Example:
            >>> import numpy as np
            >>> from sharpwave.episodes import EpisodeBuffer
            >>> ends = np.arange(6) % 3 == 2
            >>> np.savez("a.npz", observations=np.eye(6), actions=np.arange(6), terminals=ends)
            >>> EpisodeBuffer.from_npz("a.npz", "episodes").num_episodes
            2
        """
        return cls._import("npz", path, folder, options, ("keep_next_obs",))

    def to_npz(self, path: PathLike, **options: Any) -> None:
        """Write an .npz file: see `sharpwave.formats.npz.write`."""
        self._export("npz", path, options)

    @classmethod
    def from_parquet(cls: type[Self], path: PathLike, folder: PathLike, **options: Any) -> Self:
        """The episodes of a folder or file of Parquet; `keep_next_obs` keeps `next_obs`."""
        return cls._import("parquet", path, folder, options, ("keep_next_obs",))

    def to_parquet(self, path: PathLike, **options: Any) -> None:
        """Write a folder of Parquet tables: see `sharpwave.formats.arrow.write`."""
        self._export("parquet", path, options)

    @classmethod
    def from_arrow(cls: type[Self], path: PathLike, folder: PathLike, **options: Any) -> Self:
        """The episodes of a folder or file of Arrow; `keep_next_obs` keeps `next_obs`."""
        return cls._import("arrow", path, folder, options, ("keep_next_obs",))

    def to_arrow(self, path: PathLike, **options: Any) -> None:
        """Write a folder of Arrow tables: see `sharpwave.formats.arrow.write`."""
        self._export("arrow", path, options)

    @classmethod
    def from_lerobot(cls: type[Self], path: PathLike, folder: PathLike, **options: Any) -> Self:
        """The episodes of a LeRobot dataset of version 3."""
        return cls._import("lerobot", path, folder, options)

    def to_lerobot(self, path: PathLike, **options: Any) -> None:
        """Write a LeRobot dataset of version 3: see `sharpwave.formats.lerobot.write`."""
        self._export("lerobot", path, options)

    @classmethod
    def from_memmap_folder(
        cls: type[Self], path: PathLike, folder: PathLike, **options: Any
    ) -> Self:
        """The finished episodes of a folder of memmap-replay-buffer; its pickle is not opened."""
        return cls._import("memmap", path, folder, options)

    @classmethod
    def _import(
        cls: type[Self],
        name: str,
        source: Any,
        folder: PathLike,
        options: dict[str, Any],
        read_options: tuple[str, ...] = (),
    ) -> Self:
        from sharpwave.formats.registry import FORMATS

        reading = {key: options[key] for key in read_options if key in options}
        writing = {key: value for key, value in options.items() if key not in reading}
        FORMATS["episodes"].write(FORMATS[name].read(source, **reading), folder, **writing)
        opened: Self = cls.from_folder(folder)  # type: ignore[attr-defined]
        return opened

    def _export(self, name: str, target: PathLike, options: dict[str, Any]) -> None:
        from sharpwave.episodes.folder_format import stream_of
        from sharpwave.formats.registry import FORMATS

        FORMATS[name].write(stream_of(self), target, **options)
