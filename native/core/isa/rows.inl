// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

constexpr std::size_t kLine = 64;
constexpr std::size_t kPrefetchLines = 8;  // longer records are streamed by the hardware
constexpr std::size_t kWindowLines = 96;   // of a window of neighboring rows
// Rows between the prefetch and the copy. Prefetches come one row at a time: a tile of them would
// fill the core's queue of outstanding misses.
constexpr std::size_t kReadAhead = 16;
constexpr std::size_t kScatterBytes = 8192;  // of records that are written together
constexpr std::size_t kStreamedValue = 2048;
constexpr std::size_t kStreamedArray = std::size_t{2} << 20;

// Must be inlined: GCC takes a function that only prefetches for one without effect and drops the
// call.
[[gnu::always_inline]] inline void prefetch_record(const std::byte* record, std::size_t stride) {
  const std::size_t limit = kPrefetchLines * kLine;
  const std::size_t bytes = stride < limit ? stride : limit;
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

// Whether an array of long values is larger than the cores' own caches.
inline bool is_streamed(std::size_t bytes, std::size_t n_rows) {
  return bytes >= kStreamedValue && bytes * n_rows >= kStreamedArray;
}

// Records that are nothing but one field: how to copy it is chosen once for all rows.
void gather_column(const std::byte* base, const GatherColumn& column, std::size_t n_rows) {
  const std::uint64_t* slots = column.slots;
  const std::size_t bytes = column.column.bytes;
  const bool in_one_line = kLine % bytes == 0;
  const auto prefetch = [&](std::size_t row) __attribute__((always_inline)) {
    if (row >= n_rows || slots[row] == kNoSlot) return;
    const std::byte* record = base + slots[row] * bytes;
    if (in_one_line) {
      __builtin_prefetch(record, 0, 3);
    } else {
      prefetch_record(record, bytes);
    }
  };
  for (std::size_t row = 0; row < kReadAhead; ++row) prefetch(row);
  const auto copy_all = [&](auto&& copy) {
    for (std::size_t row = 0; row < n_rows; ++row) {
      prefetch(row + kReadAhead);
      std::byte* target = column.out + row * bytes;
      if (slots[row] == kNoSlot) [[unlikely]] {
        __builtin_memset(target, 0, bytes);
      } else {
        copy(target, base + slots[row] * bytes);
      }
    }
  };
  if (!is_streamed(bytes, n_rows)) return with_copy(bytes, copy_all);
  copy_all([bytes](std::byte* t, const std::byte* s) { copy_stream(t, s, bytes); });
  end_stream();
}

void gather_rows(const std::byte* base, std::size_t stride, const GatherColumn* columns,
                 std::size_t n_columns, std::size_t n_rows) {
  if (n_columns == 1 && columns[0].column.bytes == stride && stride > 0) {
    return gather_column(base, columns[0], n_rows);
  }
  bool streams = false;
  for (std::size_t c = 0; c < n_columns; ++c) {
    streams |= is_streamed(columns[c].column.bytes, n_rows);
  }
  const std::uint64_t* slots = columns[0].slots;
  for (std::size_t row = 0; row < n_rows && row < kReadAhead; ++row) {
    if (slots[row] != kNoSlot) prefetch_record(base + slots[row] * stride, stride);
  }
  for (std::size_t row = 0; row < n_rows;) {
    if (slots[row] == kNoSlot) [[unlikely]] {
      for (std::size_t c = 0; c < n_columns; ++c) {
        const std::size_t bytes = columns[c].column.bytes;
        __builtin_memset(columns[c].out + row * bytes, 0, bytes);
      }
      ++row;
      continue;
    }
    const std::byte* record = base + slots[row] * stride;
    const std::size_t run = run_length(slots, row, n_rows);
    if (run == 1) {
      const std::size_t ahead = row + kReadAhead;
      if (ahead < n_rows && slots[ahead] != kNoSlot) {
        prefetch_record(base + slots[ahead] * stride, stride);
      }
      for (std::size_t c = 0; c < n_columns; ++c) {
        const auto [offset, bytes] = columns[c].column;
        std::byte* target = columns[c].out + row * bytes;
        if (streams && is_streamed(bytes, n_rows)) {
          copy_stream(target, record + offset, bytes);
        } else {
          copy_bytes(target, record + offset, bytes);
        }
      }
    } else {  // a window: a field can be copied in one go
      // The next window is asked for while this one is copied.
      const std::size_t after = row + run;
      if (after < n_rows && slots[after] != kNoSlot) {
        const std::byte* next = base + slots[after] * stride;
        const std::size_t bytes = run_length(slots, after, n_rows) * stride;
        const std::size_t limit = kWindowLines * kLine;
        for (std::size_t offset = 0; offset < bytes && offset < limit; offset += kLine) {
          __builtin_prefetch(next + offset, 0, 3);
        }
      }
      for (std::size_t c = 0; c < n_columns; ++c) {
        const Column column = columns[c].column;
        const std::byte* source = record + column.offset;
        std::byte* target = columns[c].out + row * column.bytes;
        with_copy(column.bytes, [&](auto&& copy) {
          for (std::size_t i = 0; i < run; ++i) {
            copy(target + i * column.bytes, source + i * stride);
          }
        });
      }
    }
    row += run;
  }
  if (streams) end_stream();
}

void scatter_rows(std::byte* record, std::size_t stride, const ScatterColumn* columns,
                  std::size_t n_columns, std::size_t n_rows) {
  // A column at a time, so that how to copy it is chosen once, over rows that are asked for all at
  // once and then lie in the first cache. Longer records are streamed by the hardware.
  const std::size_t most = stride < kScatterBytes ? kScatterBytes / stride : 1;
  for (std::size_t first = 0; first < n_rows; first += most) {
    const std::size_t count = n_rows - first < most ? n_rows - first : most;
    std::byte* block = record + first * stride;
    const std::size_t bytes = count * stride;
    for (std::size_t offset = 0; offset < bytes && offset < kScatterBytes; offset += kLine) {
      __builtin_prefetch(block + offset, 1, 3);
    }
    for (std::size_t c = 0; c < n_columns; ++c) {
      const ScatterColumn& from = columns[c];
      std::byte* target = block + from.column.offset;
      const std::byte* source = from.data + first * from.stride;
      with_copy(from.column.bytes, [&](auto&& copy) {
        for (std::size_t i = 0; i < count; ++i) copy(target + i * stride, source + i * from.stride);
      });
    }
  }
}
