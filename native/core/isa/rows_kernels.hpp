// Kernels of native/core/gather.hpp and writer.hpp: rows between columns and records.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

// The slot of a padded row: it comes out as zeros.
inline constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};

// Where a field lies inside a record.
struct Column {
  std::size_t offset;
  std::size_t bytes;
};

// One output array: row i is the column's bytes at slots[i].
struct GatherColumn {
  Column column;
  const std::uint64_t* slots;
  std::byte* out;
};

// One input array: row i is the bytes at data + i * stride.
struct ScatterColumn {
  Column column;
  const std::byte* data;
  std::size_t stride;
};

struct RowsKernels {
  // Fills rows of the columns, which all read the same slots, from records at base + slot * stride.
  void (*gather)(const std::byte* base, std::size_t stride, const GatherColumn* columns,
                 std::size_t n_columns, std::size_t n_rows);
  // Writes n records, one after another from `record` on.
  void (*scatter)(std::byte* record, std::size_t stride, const ScatterColumn* columns,
                  std::size_t n_columns, std::size_t n_rows);
};

}  // namespace sharpwave
