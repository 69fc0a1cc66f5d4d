#include "core/gather.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kLongRecord = 4096;  // of which a window outgrows the first cache

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

void gather(const RowStore& store, const GatherColumn* columns, std::size_t n_columns,
            std::size_t n_rows) {
  if (n_rows == 0) return;
  for (std::size_t begin = 0; begin < n_columns;) {
    std::size_t end = begin + 1;
    while (end < n_columns && columns[end].slots == columns[begin].slots) ++end;
    kernels().rows.gather(store.record(0), store.stride(), columns + begin, end - begin, n_rows);
    begin = end;
  }
}

void gather_windows(const RowStore& store, const GatherColumn* columns, std::size_t n_columns,
                    std::size_t n_rows) {
  if (store.stride() < kLongRecord) return gather(store, columns, n_columns, n_rows);
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t c = 0; c < n_columns; ++c) {
      const auto [offset, bytes] = columns[c].column;
      std::byte* target = columns[c].out + row * bytes;
      const std::uint64_t slot = columns[c].slots[row];
      if (slot == kNoSlot) {
        std::memset(target, 0, bytes);
      } else {
        std::memcpy(target, store.record(slot) + offset, bytes);
      }
    }
  }
}

void gather_stack(const RowStore& store, const GatherColumn& column, const FrameShape& shape,
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
