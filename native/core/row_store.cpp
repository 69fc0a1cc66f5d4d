#include "core/row_store.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

namespace sharpwave {
namespace {

Memory memory_for(std::size_t stride, std::size_t slots) {
  std::size_t total = 0;
  if (__builtin_mul_overflow(stride, slots, &total)) throw std::bad_alloc();
  return Memory(total);
}

}  // namespace

RecordLayout::RecordLayout(const Schema& schema, Layout layout)
    : columns(schema.fields.size()), stored(schema.fields.size()) {
  std::vector<std::size_t> order(schema.fields.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Widest items first: every field is aligned to its item size and the record has no holes.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return item_size(schema.fields[a].dtype) > item_size(schema.fields[b].dtype);
  });
  std::size_t alignment = 1;
  for (const std::size_t i : order) {
    const Field& field = schema.fields[i];
    stored[i] = !(layout == Layout::stream && field.role == Role::next_obs);
    if (!stored[i]) continue;
    const std::size_t width =
        layout == Layout::stream ? frame_shape(field).frame_bytes() : field.bytes();
    columns[i] = {bytes, width};
    bytes += width;
    alignment = std::max(alignment, item_size(field.dtype));
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (!stored[i]) columns[i] = columns[static_cast<std::size_t>(schema.fields[i].twin)];
  }
  bytes = (bytes + alignment - 1) / alignment * alignment;
}

RowStore::RowStore(const Schema& schema, Layout layout, std::size_t slots)
    : record_(schema, layout),
      stride_(record_.bytes),
      slots_(slots),
      memory_(memory_for(stride_, slots)),
      data_(memory_.data()) {}

RowStore::RowStore(RecordLayout record, std::size_t slots, std::size_t stride, std::byte* memory)
    : record_(std::move(record)), stride_(stride), slots_(slots), data_(memory) {}

}  // namespace sharpwave
