// The docstrings of EpisodeRows' methods; the first line is the signature that Python shows.
#pragma once

namespace sharpwave::bind {

inline constexpr const char* kStoreDoc = R"(store($self, /, **fields)
--

Store one step of the open episode, committed when the call returns.

Fields go by name; one that is not given takes its default (zeros unless the schema says otherwise), and
a number fills a field of any shape. Without an open episode a new one begins, which `advance_episode`
ends. The step outlives the death of the process at any moment.

Returns:
    A namedtuple `Memory` of what was given, and the defaults of what was not.

Raises:
    TypeError: For unknown fields, and values that are no numbers.
    ValueError: For wrong shapes, values that do not fit the field, NaN where the schema forbids it, more
        than `max_timesteps` steps, and an episode too many.
    SharpwaveIOError: The disk is full. Nothing that was stored is lost; the call may be made again.
)";

inline constexpr const char* kStoreEpisodeDoc = R"(store_episode($self, /, **fields)
--

Store a whole episode: fields of steps as [T, ...], fields of episodes as they are.

Either all of it is stored or, with an exception, nothing.

Raises:
    TypeError, ValueError, SharpwaveIOError: As for store.
)";

inline constexpr const char* kStoreBatchDoc = R"(store_batch($self, active=None, /, **fields)
--

Store one step of each episode of the open batch: fields as [B, ...].

Args:
    active: Which of the episodes the step belongs to [B] bool (also by name); all by default. So episodes
        that have come to their end wait for the others, and each keeps its own length.
    **fields: As for store, with a leading axis.

Without an open batch a new one of B episodes begins, which `advance_episode` ends.

Raises:
    TypeError, ValueError, SharpwaveIOError: As for store. Nothing of the step is stored then.
)";

inline constexpr const char* kStoreMetaBatchDoc = R"(store_meta_batch($self, /, **fields)
--

Set fields of the episodes of the open batch, each as [B, ...].

Raises:
    TypeError, ValueError: As for store.
)";

inline constexpr const char* kGatherStepsDoc = R"(gather($self, /, rows, fields=None, out=None)
--

Steps by their row numbers: a dict of arrays [*rows.shape, *field.shape].

Args:
    rows: Integers of any shape (see EpisodeTable.starts); -1 gives zeros.
    fields: Names of fields, dotted where nested; all of them by default.
    out: A dict of arrays or torch tensors to write to. It is what is returned.

Raises:
    IndexError: For a row that is gone, or was never written.
)";

inline constexpr const char* kGatherRangesDoc =
    R"(gather_ranges($self, /, starts, lengths, width, fields=None, out=None)
--

Runs of steps: a dict of arrays [B, width, *field.shape] with zeros behind the end of a run.

Args:
    starts: The first row of each run [B].
    lengths: The steps of each run [B], at most `width`.
    width: Steps of the result.
    fields: Names of fields, dotted where nested; all of them by default.
    out: A dict of arrays or torch tensors to write to. It is what is returned.

Raises:
    IndexError: For a row that is gone, or was never written.
    ValueError: For a length that is negative or larger than `width`.
)";

}  // namespace sharpwave::bind
