// Rows as records: all fields of a slot side by side, so that a random row costs two or three cache
// lines instead of one per field. The memory is the store's own, or that of mapped files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/isa/rows_kernels.hpp"
#include "core/memory.hpp"
#include "core/schema.hpp"

namespace sharpwave {

// transition: obs and next_obs in one record, rows in any order.
// stream: one observation per slot; next_obs and frame stacks are read from the neighboring slots.
enum class Layout : std::uint8_t { transition, stream };

// Where the fields lie in a record.
struct RecordLayout {
  RecordLayout(const Schema& schema, Layout layout);

  std::vector<Column> columns;
  std::vector<bool> stored;
  std::size_t bytes = 0;  // a multiple of every item size
};

class RowStore {
 public:
  RowStore(const Schema& schema, Layout layout, std::size_t slots);
  // In memory of the caller, with records `stride` bytes apart.
  RowStore(RecordLayout record, std::size_t slots, std::size_t stride, std::byte* memory);

  std::byte* record(std::size_t slot) { return data_ + slot * stride_; }
  const std::byte* record(std::size_t slot) const { return data_ + slot * stride_; }
  // A stacked field stores one frame per slot. In the stream layout a next_obs field has the column
  // of its twin.
  const Column& column(std::size_t field) const { return record_.columns[field]; }
  bool is_stored(std::size_t field) const { return record_.stored[field]; }

  std::size_t slots() const { return slots_; }
  std::size_t stride() const { return stride_; }
  // Of its own memory.
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  RecordLayout record_;
  std::size_t stride_;
  std::size_t slots_;
  Memory memory_;
  std::byte* data_;
};

}  // namespace sharpwave
