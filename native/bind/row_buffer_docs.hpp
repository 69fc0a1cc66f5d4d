// The docstrings of RowBuffer's methods; the first line is the signature that Python shows.
#pragma once

namespace sharpwave::bind {

inline constexpr const char* kPushDoc = R"(push($self, /, *args, **kwargs)
--

Push one step: obs, action, reward, terminated, truncated, next_obs, positionally or by name.

Extra columns go by name. A PrioritizedReplayBuffer takes `priority` (by default the highest so far), and
a buffer of several environments needs `stream`, the number of the environment. Values may be arrays,
lists, numbers or torch tensors in CPU memory, of the field's shape or flat; they are cast where nothing is
lost.

Raises:
    TypeError: For missing or unknown arguments, and values that are no numbers.
    ValueError: For wrong shapes, values that do not fit the field, and rewards that are not finite.
)";

inline constexpr const char* kPushBatchDoc = R"(push_batch($self, /, *args, **kwargs)
--

Push many steps: obs, next_obs, actions, rewards, terminated, truncated, each [n, ...] or flat.

Extra columns go by name; `priorities` [n] where there are priorities. A buffer of N environments takes
one row of each per step, time-major when there are several steps, or rows of the environments that
`streams` [n] names. If anything is wrong with any row, nothing is pushed.

Raises:
    TypeError, ValueError: As for push.
    IndexError: For a stream that does not exist.
)";

inline constexpr const char* kSampleDoc =
    R"(sample($self, /, batch_size, seed=None, *, view=None, selector=None, out=None, indices=False)
--

Draw a batch with replacement: a dict of arrays [batch_size, ...], nested where observations are.

Args:
    batch_size: Rows to draw, at most the steps in the buffer.
    seed: The batch is a function of the content and the seed. Without one the buffer's own generator
        moves on, so that no two calls repeat.
    view: What a step becomes: NStep, Sequence, Hindsight, Transition.
    selector: Which steps to draw: Uniform, Recent, Prioritized, WithoutReplacement, Where, Mixture.
    out: A Batch made by batch(), or a dict of arrays or torch tensors, to write to. Fields it lacks are
        left out. It is what is returned.
    indices: Add the ids of the steps.

Raises:
    ValueError: If there are not enough steps, or no step fits the view.
)";

inline constexpr const char* kGatherDoc = R"(gather($self, /, indices, *, view=None, out=None)
--

The batch of the steps with these ids.

Raises:
    IndexError: For an id that is not in the buffer.
)";

inline constexpr const char* kUpdatePrioritiesDoc =
    R"(update_priorities($self, /, indices, priorities)
--

Set the priorities of steps, by ids from a batch. TD errors may have either sign.

Returns:
    How many of the steps had been overwritten meanwhile; their priorities are dropped.

Raises:
    ValueError: For priorities that are not finite, or not as many as indices. Nothing has changed then.
    IndexError: For an id that was never handed out. Nothing has changed then.
)";

}  // namespace sharpwave::bind
