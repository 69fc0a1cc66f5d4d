#include "core/store_heap.hpp"

#include <algorithm>
#include <new>
#include <numeric>

namespace sharpwave {

HeapStore::HeapStore(const Schema& schema, Layout layout, std::size_t slots)
    : columns_(schema.fields.size()), stored_(schema.fields.size()), slots_(slots) {
  std::vector<std::size_t> order(schema.fields.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Widest items first: every field is aligned to its item size and the record has no holes.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return item_size(schema.fields[a].dtype) > item_size(schema.fields[b].dtype);
  });
  std::size_t alignment = 1;
  for (const std::size_t i : order) {
    const Field& field = schema.fields[i];
    stored_[i] = !(layout == Layout::stream && field.role == Role::next_obs);
    if (!stored_[i]) continue;
    const std::size_t bytes =
        layout == Layout::stream ? frame_shape(field).frame_bytes() : field.bytes();
    columns_[i] = {stride_, bytes};
    stride_ += bytes;
    alignment = std::max(alignment, item_size(field.dtype));
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!stored_[i]) columns_[i] = columns_[static_cast<std::size_t>(schema.fields[i].twin)];
  }
  stride_ = (stride_ + alignment - 1) / alignment * alignment;
  std::size_t total = 0;
  if (__builtin_mul_overflow(stride_, slots, &total)) throw std::bad_alloc();
  memory_ = Memory(total);
}

}  // namespace sharpwave
