#include "core/gather.hpp"

#include <algorithm>
#include <cstring>

namespace sharpwave {
namespace {

constexpr std::size_t kTile = 64;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPrefetchLines = 8;  // longer records are streamed by the hardware

template <std::size_t N>
void copy_fixed(std::byte* target, const std::byte* source) {
  std::memcpy(target, source, N);
}

// Two possibly overlapping copies of N bytes cover any size from N to 2 N.
template <std::size_t N>
void copy_ends(std::byte* target, const std::byte* source, std::size_t bytes) {
  copy_fixed<N>(target, source);
  copy_fixed<N>(target + bytes - N, source + bytes - N);
}

void copy_blocks(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t offset = 0;
  for (; offset + 32 <= bytes; offset += 32) copy_fixed<32>(target + offset, source + offset);
  copy_fixed<32>(target + bytes - 32, source + bytes - 32);
}

template <typename Copy>
void copy_rows(const HeapStore& store, const GatherColumn& column, std::size_t begin,
               std::size_t end, Copy&& copy) {
  const std::size_t bytes = column.column.bytes;
  for (std::size_t row = begin; row < end; ++row) {
    std::byte* target = column.out + row * bytes;
    const std::uint64_t slot = column.slots[row];
    if (slot == kNoSlot) [[unlikely]] {
      std::memset(target, 0, bytes);
    } else {
      copy(target, store.record(slot) + column.column.offset);
    }
  }
}

void gather_tile(const HeapStore& store, const GatherColumn& column, std::size_t begin,
                 std::size_t end) {
  const std::size_t bytes = column.column.bytes;
  const auto rows = [&](auto&& copy) { copy_rows(store, column, begin, end, copy); };
  // The size class is chosen once per tile, so that the inner loop has no calls and few branches.
  if (bytes == 1) return rows([](std::byte* t, const std::byte* s) { copy_fixed<1>(t, s); });
  if (bytes == 4) return rows([](std::byte* t, const std::byte* s) { copy_fixed<4>(t, s); });
  if (bytes == 8) return rows([](std::byte* t, const std::byte* s) { copy_fixed<8>(t, s); });
  if (bytes == 16) return rows([](std::byte* t, const std::byte* s) { copy_fixed<16>(t, s); });
  if (bytes < 4) return rows([=](std::byte* t, const std::byte* s) { std::memcpy(t, s, bytes); });
  if (bytes < 8) return rows([=](std::byte* t, const std::byte* s) { copy_ends<4>(t, s, bytes); });
  if (bytes < 16) return rows([=](std::byte* t, const std::byte* s) { copy_ends<8>(t, s, bytes); });
  if (bytes < 32)
    return rows([=](std::byte* t, const std::byte* s) { copy_ends<16>(t, s, bytes); });
  if (bytes <= 1024)
    return rows([=](std::byte* t, const std::byte* s) { copy_blocks(t, s, bytes); });
  rows([=](std::byte* t, const std::byte* s) { std::memcpy(t, s, bytes); });
}

void prefetch_tile(const HeapStore& store, const std::uint64_t* slots, std::size_t begin,
                   std::size_t end) {
  const std::size_t bytes = std::min(store.stride(), kPrefetchLines * kLine);
  for (std::size_t row = begin; row < end; ++row) {
    if (slots[row] == kNoSlot) continue;
    const std::byte* record = store.record(slots[row]);
    for (std::size_t offset = 0; offset < bytes; offset += kLine) {
      __builtin_prefetch(record + offset, 0, 3);
    }
    __builtin_prefetch(record + bytes - 1, 0, 3);
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
  const auto prefetch = [&](std::size_t begin, std::size_t end) {
    const std::uint64_t* done = nullptr;
    for (std::size_t c = 0; c < n_columns; ++c) {
      if (columns[c].slots == done) continue;
      done = columns[c].slots;
      prefetch_tile(store, done, begin, end);
    }
  };
  prefetch(0, std::min(kTile, n_rows));
  for (std::size_t begin = 0; begin < n_rows; begin += kTile) {
    const std::size_t end = std::min(begin + kTile, n_rows);
    prefetch(end, std::min(end + kTile, n_rows));
    for (std::size_t c = 0; c < n_columns; ++c) gather_tile(store, columns[c], begin, end);
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
