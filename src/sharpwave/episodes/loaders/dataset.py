"""A dataset of episodes, steps, transitions or windows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from sharpwave.buffers.replay import check_count
from sharpwave.core.lazy import torch
from sharpwave.episodes.loaders.batch_form import Batch, BatchForm
from sharpwave.episodes.loaders.cut import Cut
from sharpwave.episodes.loaders.filters import Filters
from sharpwave.episodes.loaders.items import Items
from sharpwave.episodes.loaders.options import Windows, level_of
from sharpwave.episodes.loaders.outputs import Output, checked_names, chosen_fields, make_recipe
from sharpwave.episodes.loaders.reader import EpisodeReader
from sharpwave.episodes.loaders.snapshot import Snapshot
from sharpwave.types import Array

__all__ = ["EpisodeDataset"]


class EpisodeDataset:
    """Items of the episodes that a buffer holds now: a map-style dataset for torch.

    An item is a whole episode, a step (`timestep_level`), a transition (`n_steps`) or a window
    (`window_length`). The dataset does not grow with the buffer. Items whose episode has been
    overwritten in the meantime are left out of batches; they are never mixed with newer steps.

    Every item and batch is a dict (or a named tuple) of torch tensors under the names of fields and
    meta fields; nested fields come back nested. Further values:

    | name | of | what it is |
    |---|---|---|
    | `_lens` | episode, window | int64 [B], steps before the padding |
    | `_mask` | episode, window | bool [B, T], false where padded |
    | `_index` | episode, window | int64 [B], places of episodes in `buffer.episodes()` |
    | `_indices` | step, transition | int64 [B, 2], the same and the step |
    | `_start` | window | int64 [B], the step at which a window begins |
    | `_reaches_episode_end` | window | bool [B] |
    | `n_step_lens` | transition | int64 [B], the steps k of a transition |

    Args:
        reader: An `EpisodeBuffer` or an `EpisodeUnion`.
        n_steps: Items are transitions from a step t to t + k, k = min(n_steps, L - t - 1) in an
            episode of L steps.
        fields: Names of the fields of steps to read; all by default.
        current_fields: Names of the fields of transitions to read at t; all by default.
        next_fields: Fields to read at t + k, under names with the prefix `next_`; all by default.
        sequence_fields: Fields to read from t to t + k - 1, padded with zeros to n_steps, under
            names with the prefix `seq_`; none by default.
        timestep_level: Items are steps.
        window_length: Items are windows of so many steps, padded with zeros.
        windows: "random": one of every episode, at a random place; "all": all of every episode.
        stride: Steps between the beginnings of windows="all"; 1 by default.
        pad_to: Number of steps to which episodes are padded, instead of that of the longest episode
            in a batch.
        filter_meta: Only episodes whose meta fields are equal to a value, one of several (a list,
            tuple, set, range or array), or pass a function from a column [E, ...] to bool [E].
        filter_fields: Only steps whose scalar fields do the same.
        min_episode_len: Only episodes of so many steps.
        aborted: Take episodes that were never finished too.
        meta_fields: Names of the meta fields to read; all by default.
        fieldname_map: Other names for values, by the names they have without it.
        to_named_tuple: Items and batches are named tuples of these values in this order. Leading
            underscores are left out of the attributes.
        return_mask: Give `_mask`.
        return_indices: Give `_index` and `_start`, or `_indices`.
        return_episode_lens: Give `_lens`.
        as_numpy: NumPy arrays instead of tensors.
        seed: Random seed of windows, and of the order in which a loader shuffles.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: The buffer has no episode, a name is unknown, or options exclude each other.
    """

    def __init__(
        self,
        reader: EpisodeReader,
        n_steps: int | None = None,
        fields: Sequence[str] | None = None,
        current_fields: Sequence[str] | None = None,
        next_fields: Sequence[str] | None = None,
        sequence_fields: Sequence[str] | None = None,
        timestep_level: bool = False,
        filter_meta: Filters | None = None,
        filter_fields: Filters | None = None,
        fieldname_map: Mapping[str, str] | None = None,
        *,
        window_length: int | None = None,
        windows: Windows | None = None,
        stride: int | None = None,
        pad_to: int | None = None,
        min_episode_len: int = 1,
        aborted: bool = False,
        meta_fields: Sequence[str] | None = None,
        to_named_tuple: Sequence[str] | None = None,
        return_mask: bool = False,
        return_indices: bool = False,
        return_episode_lens: bool = True,
        as_numpy: bool = False,
        seed: int = 0,
    ) -> None:
        if fields is not None and to_named_tuple is not None:
            raise ValueError("cannot specify both fields and to_named_tuple")
        self.seed = check_count("seed", seed, 0, 2**64 - 1)
        self.as_numpy = bool(as_numpy)
        level = level_of(
            n_steps=n_steps,
            timestep_level=timestep_level,
            window_length=window_length,
            fields=fields,
            current_fields=current_fields,
            next_fields=next_fields,
            sequence_fields=sequence_fields,
            windows=windows,
            stride=stride,
            pad_to=pad_to,
            filter_fields=filter_fields,
            return_mask=return_mask,
        )
        outputs = _asked(
            level.outputs(reader.schema),
            meta=chosen_fields("meta_fields", meta_fields, list(reader.schema.meta_fields)),
            places={
                "_lens": return_episode_lens,
                "_mask": return_mask,
                "_index": return_indices,
                "_indices": return_indices,
                "_start": return_indices,
            },
        )
        named = None if to_named_tuple is None else checked_names("to_named_tuple", to_named_tuple)
        recipe = make_recipe(outputs, fieldname_map, named)
        self.form = BatchForm(recipe.names, named)
        snapshot = Snapshot.of(
            reader,
            meta=recipe.meta,
            filter_meta=filter_meta,
            min_length=check_count("min_episode_len", min_episode_len, 0),
            aborted=aborted,
        )
        self.items = Items(reader, snapshot, level, recipe, filter_fields)
        self._draws = 0

    def __len__(self) -> int:
        """Number of items, those included whose episodes are gone since."""
        return len(self.items)

    def __getitem__(self, item: int) -> Batch:
        """One item, without padding where it is a whole episode.

        Raises:
            IndexError: There is none with this number, or its episode was overwritten.
        """
        number = item + len(self) if item < 0 else item
        if not 0 <= number < len(self):
            raise IndexError(f"item must be in [{-len(self)}, {len(self)}), got {item}")
        return self.__getitems__([number])[0]

    def __getitems__(self, items: Sequence[int]) -> list[Batch]:
        """Several items, read at once; those whose episodes were overwritten are left out.

        Raises:
            IndexError: A number is wrong, or all of the episodes were overwritten.
        """
        found = self._apart(items)
        if not found and len(items) > 0:
            raise IndexError(f"items {list(items)} are gone: their episodes were overwritten")
        return found

    def __iter__(self) -> Iterator[Batch]:
        for number in range(len(self)):
            yield from self._apart([number])

    def batch(self, items: Sequence[int] | Array) -> Batch:
        """Several items, stacked and padded; those whose episodes were overwritten are left out.

        Args:
            items: [B] Numbers below the length of the dataset.

        Raises:
            IndexError: A number is wrong.
        """
        _, values = self.items.read_alive(self.items.anchors.find(items), self._next_key())
        return self.formed(values)

    def formed(self, values: Sequence[Array]) -> Batch:
        """An item or a batch of its values."""
        if self.as_numpy:
            return self.form(values)
        from_numpy = torch.from_numpy
        return self.form([from_numpy(value) for value in values])

    def _apart(self, numbers: Sequence[int]) -> list[Batch]:
        """The items that are still there, one by one."""
        places = self.items.anchors.find(numbers)
        cut, values = self.items.read_alive(places, self._next_key())
        return [self.formed(self._one(cut, values, i)) for i in range(len(cut.episodes))]

    def _one(self, cut: Cut, values: Sequence[Array], i: int) -> list[Array]:
        """The values of one item of a batch."""
        recipe = self.items.recipe
        own = [np.asarray(value[i]) for value in values]
        if self.items.level.ragged:
            first = len(recipe.row) + len(recipe.next)
            for k in range(first, first + len(recipe.span)):
                own[k] = own[k][: cut.lengths[i]]
        return own

    def _next_key(self) -> int:
        """A key for the random choices of one access: a new one every time, in every worker."""
        self._draws += 1
        return mixed_key(self.seed, self._draws, worker_seed())


def mixed_key(*words: int) -> int:
    """A number of 64 bits made of several."""
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])


def worker_seed() -> int:
    """The seed that torch drew for the epoch, in a worker of one of its loaders; otherwise 0.

    Workers are copies of the process as it was: without this they would all choose alike, and the
    same in every epoch.
    """
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return 0 if info is None else int(info.seed)


def _asked(
    outputs: Sequence[Output], *, meta: Sequence[str], places: Mapping[str, bool]
) -> list[Output]:
    """The outputs, of which batches hold only some meta fields and places unless named."""
    return [
        output._replace(asked=output.field in meta)
        if output.source == "meta"
        else output._replace(asked=places.get(output.field, True))
        if output.source == "place"
        else output
        for output in outputs
    ]
