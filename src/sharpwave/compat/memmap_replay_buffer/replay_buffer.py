"""`sharpwave.EpisodeBuffer` with memmap-replay-buffer's arguments, attributes and order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sharpwave.buffers.replay import check_count
from sharpwave.episodes import EpisodeBuffer, EpisodeDataset
from sharpwave.episodes.loaders.loader import EpisodeLoader
from sharpwave.episodes.table import EpisodeTable, MetaColumns
from sharpwave.types import Array

__all__ = ["ReplayBuffer"]


class ReplayBuffer(EpisodeBuffer):
    """`sharpwave.EpisodeBuffer`, whose episodes are in the order of memmap-replay-buffer's slots.

    Episode after episode takes the next of `max_episodes` slots. Once a circular buffer is full, a
    new one takes the slot of the oldest: then the first in a loader, in `get_all_data` and for
    `update` need not be the oldest.

    Args:
        folder: As for `sharpwave.EpisodeBuffer`, like those that follow.
        max_episodes: Likewise.
        max_timesteps: Likewise.
        fields: Likewise.
        meta_fields: Likewise.
        circular: Likewise.
        overwrite: Likewise.
        read_only: Likewise.
        flush_every_store_step: At least 0. Changes nothing: every step outlives the process when
            `store` returns; `flush`, or `durability="power"`, waits for the disk.
        **options: Further ones of `sharpwave.EpisodeBuffer`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> buffer = ReplayBuffer(folder, 2, 5, {"reward": "float"}, circular=True)
        >>> for number in range(3):
        ...     buffer.store_episode(reward=[number, number])
        >>> buffer.get_all_data(as_numpy=True)["reward"][:, 0].tolist()
        [2.0, 1.0]
        >>> buffer.data["reward"].shape, buffer.episode_lens.tolist()
        ((2, 5), [2, 2])
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
        flush_every_store_step: int = 1,
        **options: Any,
    ) -> None:
        check_count("flush_every_store_step", flush_every_store_step, 0)
        super().__init__(
            folder,
            max_episodes,
            max_timesteps,
            fields,
            meta_fields,
            circular,
            overwrite,
            read_only,
            **options,
        )

    def episodes(self, aborted: bool = False) -> EpisodeTable:
        """The finished episodes by slot.

        Args:
            aborted: Give aborted ones, too; then the oldest are first.
        """
        table = super().episodes(aborted)
        if aborted or not self.circular or len(table) < self.max_episodes:
            return table
        order = np.roll(np.arange(len(table)), int(table.ids[0]) % len(table))
        return replace(
            table,
            ids=table.ids[order],
            starts=table.starts[order],
            lengths=table.lengths[order],
            flags=table.flags[order],
            meta=MetaColumns(iter(table.meta), lambda name: table.meta[name][order]),
        )

    def dataset(self, n_steps: int | None = None, **options: Any) -> EpisodeDataset:
        """`EpisodeBuffer.dataset`, which takes `n_steps` by position too."""
        return super().dataset(**_with(n_steps, options))

    def dataloader(
        self, batch_size: int, n_steps: int | None = None, **options: Any
    ) -> EpisodeLoader:
        """`EpisodeBuffer.dataloader`, which takes `n_steps` by position too."""
        return super().dataloader(batch_size, **_with(n_steps, options))

    @property
    def fieldnames(self) -> set[str]:
        """Names of the fields of steps."""
        return set(self.schema.fields)

    @property
    def meta_fieldnames(self) -> set[str]:
        """Names of the fields of episodes, the lengths among them."""
        return {*self.schema.meta_fields, "episode_lens"}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the fields of steps."""
        return {name: field.shape for name, field in self.schema.fields.items()}

    @property
    def dtypes(self) -> dict[str, Any]:
        """Types of the fields of steps."""
        return {name: np.dtype(field.dtype).type for name, field in self.schema.fields.items()}

    @property
    def episode_lens(self) -> Array:
        """[max_episodes] int32, the length of the episode in each slot, 0 where there is none."""
        lengths = np.zeros(self.max_episodes, np.int32)
        table = self.episodes()
        lengths[: len(table)] = table.lengths
        return lengths

    @property
    def data(self) -> Mapping[str, Array]:
        """Fields of steps, [max_episodes, max_timesteps, ...] each: copies as of now.

        They cannot be written to: `update` changes stored episodes.
        """
        return MetaColumns(iter(self.schema.fields), self._whole)

    @property
    def meta_data(self) -> Mapping[str, Array]:
        """Fields of episodes, [max_episodes, ...] each, likewise."""
        return MetaColumns(iter([*self.schema.meta_fields, "episode_lens"]), self._whole_meta)

    def _whole(self, name: str) -> Array:
        field, table = self.schema.fields[name], self.episodes()
        # Pages of slots that nothing is written to take no memory.
        whole = np.zeros((self.max_episodes, self.max_timesteps, *field.shape), field.dtype)
        for slot, (start, length) in enumerate(zip(table.starts, table.lengths, strict=True)):
            steps = self.gather(np.arange(start, start + length), [name])
            whole[slot, :length] = steps[name]
        whole.flags.writeable = False
        return whole

    def _whole_meta(self, name: str) -> Array:
        if name == "episode_lens":
            return self.episode_lens
        field, table = self.schema.meta_fields[name], self.episodes()
        whole = np.zeros((self.max_episodes, *field.shape), field.dtype)
        whole[: len(table)] = table.meta[name]
        whole.flags.writeable = False
        return whole


def _with(n_steps: int | None, options: dict[str, Any]) -> dict[str, Any]:
    return options if n_steps is None else {**options, "n_steps": n_steps}
