#include "core/gather.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/copy.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPrefetchLines = 8;  // longer records are streamed by the hardware
// Rows between the prefetch and the copy. Prefetches that come one row at a time keep the memory
// busy without filling the core's queue of outstanding misses: half the time of whole tiles of
// them.
constexpr std::size_t kDistance = 16;

// Must be inlined: GCC takes a function that only prefetches for one without effect and drops the
// call.
[[gnu::always_inline]] inline void prefetch_record(const HeapStore& store, std::uint64_t slot) {
  if (slot == kNoSlot) return;
  const std::byte* record = store.record(slot);
  const std::size_t bytes = std::min(store.stride(), kPrefetchLines * kLine);
  for (std::size_t offset = 0; offset < bytes; offset += kLine) {
    __builtin_prefetch(record + offset, 0, 3);
  }
  __builtin_prefetch(record + bytes - 1, 0, 3);
}

// The number of rows from `row` on that lie one after another in the store.
inline std::size_t run_length(const std::uint64_t* slots, std::size_t row, std::size_t n_rows) {
  std::size_t run = 1;
  while (row + run < n_rows && slots[row + run] == slots[row] + run) ++run;
  return run;
}

// Gathers columns that all read the same slots.
void gather_group(const HeapStore& store, const GatherColumn* columns, std::size_t n_columns,
                  std::size_t n_rows) {
  const std::uint64_t* slots = columns[0].slots;
  const std::size_t ahead = std::min(kDistance, n_rows);
  for (std::size_t row = 0; row < ahead; ++row) prefetch_record(store, slots[row]);
  for (std::size_t row = 0; row < n_rows;) {
    if (slots[row] == kNoSlot) [[unlikely]] {
      for (std::size_t c = 0; c < n_columns; ++c) {
        const std::size_t bytes = columns[c].column.bytes;
        std::memset(columns[c].out + row * bytes, 0, bytes);
      }
      ++row;
      continue;
    }
    const std::byte* record = store.record(slots[row]);
    const std::size_t run = run_length(slots, row, n_rows);
    if (run == 1) {
      if (row + kDistance < n_rows) prefetch_record(store, slots[row + kDistance]);
      for (std::size_t c = 0; c < n_columns; ++c) {
        const Column& column = columns[c].column;
        copy_bytes(columns[c].out + row * column.bytes, record + column.offset, column.bytes);
      }
    } else {  // a window: the hardware sees what comes next, and a field can be copied in one go
      const std::size_t stride = store.stride();
      for (std::size_t c = 0; c < n_columns; ++c) {
        const Column column = columns[c].column;
        const std::byte* source = record + column.offset;
        std::byte* target = columns[c].out + row * column.bytes;
        with_copy(column.bytes, [&](auto&& copy) {
          for (std::size_t i = 0; i < run; ++i)
            copy(target + i * column.bytes, source + i * stride);
        });
      }
      // The windows behind this one have not been asked for yet.
      for (std::size_t next = row + run; next < std::min(row + run + kDistance, n_rows); ++next) {
        prefetch_record(store, slots[next]);
        if (next + 1 < n_rows && slots[next + 1] == slots[next] + 1) break;
      }
    }
    row += run;
  }
}

// Interleaves k frames of `outer` items each: out[o * k + j] = frames[j][o].
template <typename Item>
void interleave(const std::byte* const* frames, std::size_t k, std::size_t outer, std::byte* out) {
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t j = 0; j < k; ++j) {
      std::memcpy(out + (o * k + j) * sizeof(Item), frames[j] + o * sizeof(Item), sizeof(Item));
    }
  }
}

void write_stack(const FrameShape& shape, const std::byte* const* frames, std::byte* out) {
  const std::size_t k = shape.stack;
  switch (shape.outer == 1 ? 0 : shape.inner) {
    case 1:
      return interleave<std::uint8_t>(frames, k, shape.outer, out);
    case 2:
      return interleave<std::uint16_t>(frames, k, shape.outer, out);
    case 4:
      return interleave<std::uint32_t>(frames, k, shape.outer, out);
    case 8:
      return interleave<std::uint64_t>(frames, k, shape.outer, out);
    default:
      break;
  }
  for (std::size_t o = 0; o < shape.outer; ++o) {
    for (std::size_t j = 0; j < k; ++j) {
      std::memcpy(out + (o * k + j) * shape.inner, frames[j] + o * shape.inner, shape.inner);
    }
  }
}

}  // namespace

void gather(const HeapStore& store, const GatherColumn* columns, std::size_t n_columns,
            std::size_t n_rows) {
  if (n_rows == 0) return;
  for (std::size_t begin = 0; begin < n_columns;) {
    std::size_t end = begin + 1;
    while (end < n_columns && columns[end].slots == columns[begin].slots) ++end;
    gather_group(store, columns + begin, end - begin, n_rows);
    begin = end;
  }
}

void gather_stack(const HeapStore& store, const GatherColumn& column, const FrameShape& shape,
                  std::size_t slots_per_stream, std::size_t n_rows) {
  const std::size_t bytes = shape.frame_bytes() * shape.stack;
  std::vector<const std::byte*> frames(shape.stack);
  for (std::size_t row = 0; row < n_rows; ++row) {
    std::byte* out = column.out + row * bytes;
    const std::uint64_t slot = column.slots[row];
    if (slot == kNoSlot) {
      std::memset(out, 0, bytes);
      continue;
    }
    const std::uint64_t base = slot / slots_per_stream * slots_per_stream;
    for (std::size_t j = 0; j < shape.stack; ++j) {
      const std::uint64_t back = shape.stack - 1 - j;
      const std::uint64_t position = slot - base;
      const std::uint64_t at =
          position >= back ? position - back : position + slots_per_stream - back;
      frames[j] = store.record(base + at) + column.column.offset;
    }
    write_stack(shape, frames.data(), out);
  }
}

void copy_frame(const FrameShape& frames, const std::byte* stacked, std::size_t frame,
                std::byte* target) {
  for (std::size_t o = 0; o < frames.outer; ++o) {
    std::memcpy(target + o * frames.inner, stacked + (o * frames.stack + frame) * frames.inner,
                frames.inner);
  }
}

bool equal_frame(const FrameShape& frames, const std::byte* stacked, std::size_t frame,
                 const std::byte* contiguous) {
  for (std::size_t o = 0; o < frames.outer; ++o) {
    if (std::memcmp(contiguous + o * frames.inner,
                    stacked + (o * frames.stack + frame) * frames.inner, frames.inner) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace sharpwave
