// Rows in host memory: one contiguous record per slot, so that a random row costs two or three
// cache lines instead of one per field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/isa/rows_kernels.hpp"
#include "core/memory.hpp"
#include "core/schema.hpp"

namespace sharpwave {

// transition: obs and next_obs in one record, rows in any order.
// stream: one observation per slot; next_obs and frame stacks are read from the neighbouring slots.
enum class Layout : std::uint8_t { transition, stream };

class HeapStore {
 public:
  HeapStore(const Schema& schema, Layout layout, std::size_t slots);

  std::byte* record(std::size_t slot) { return memory_.data() + slot * stride_; }
  const std::byte* record(std::size_t slot) const { return memory_.data() + slot * stride_; }
  // A stacked field stores one frame per slot. In the stream layout a next_obs field has the column
  // of its twin.
  const Column& column(std::size_t field) const { return columns_[field]; }
  bool is_stored(std::size_t field) const { return stored_[field]; }

  std::size_t slots() const { return slots_; }
  std::size_t stride() const { return stride_; }
  std::size_t bytes() const { return memory_.bytes(); }

 private:
  std::vector<Column> columns_;
  std::vector<bool> stored_;
  std::size_t stride_ = 0;
  std::size_t slots_;
  Memory memory_;
};

}  // namespace sharpwave
