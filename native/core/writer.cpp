#include "core/writer.hpp"

#include <algorithm>
#include <cstring>

#include "core/gather.hpp"
#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

#include "core/isa/copy.inl"

}  // namespace

Writer::Writer(const Schema& schema, Layout layout, RowStore* store, Streams* streams)
    : layout_(layout),
      store_(store),
      streams_(streams),
      stack_(static_cast<std::uint64_t>(schema.max_stack())),
      terminated_(schema.find(Role::terminated)),
      truncated_(schema.find(Role::truncated)) {
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    const Field& field = schema.fields[i];
    const bool observation = field.role == Role::obs || field.role == Role::next_obs;
    if (layout == Layout::transition || !observation) {
      plain_fields_.push_back(i);
      columns_.push_back({store->column(i), nullptr, 0});
    } else if (field.role == Role::next_obs) {
      obs_fields_.push_back({field.twin, static_cast<int>(i), frame_shape(field)});
    }
  }
}

void Writer::write_fields(std::size_t slot, const Source* sources, std::size_t row) {
  std::byte* record = store_->record(slot);
  for (const std::size_t field : plain_fields_) {
    const Column& column = store_->column(field);
    copy_bytes(record + column.offset, sources[field].data + row * sources[field].stride,
               column.bytes);
  }
}

void Writer::rewrite(std::size_t slot, const std::vector<std::size_t>& fields,
                     const Source* sources, std::size_t row) {
  std::byte* record = store_->record(slot);
  for (const std::size_t field : fields) {
    const Column& column = store_->column(field);
    copy_bytes(record + column.offset, sources[field].data + row * sources[field].stride,
               column.bytes);
  }
}

void Writer::write_obs(std::uint32_t stream, std::uint64_t seq, const Source* sources,
                       std::size_t row, Role role, std::uint64_t frames) {
  for (const ObsField& obs : obs_fields_) {
    const Source& source = sources[role == Role::obs ? obs.field : obs.next_field];
    const std::byte* data = source.data + row * source.stride;
    const std::size_t offset = store_->column(static_cast<std::size_t>(obs.field)).offset;
    const std::uint64_t own = std::min<std::uint64_t>(frames, obs.frames.stack);
    for (std::uint64_t back = 0; back < own; ++back) {
      std::byte* target = store_->record(streams_->slot(stream, seq - back)) + offset;
      copy_frame(obs.frames, data, obs.frames.stack - 1 - back, target);
    }
  }
}

bool Writer::holds_obs(std::uint32_t stream, std::uint64_t seq, const Source* sources,
                       std::size_t row) const {
  for (const ObsField& obs : obs_fields_) {
    const Source& source = sources[obs.field];
    const std::byte* data = source.data + row * source.stride;
    const std::size_t offset = store_->column(static_cast<std::size_t>(obs.field)).offset;
    for (std::uint64_t back = 0; back < obs.frames.stack; ++back) {
      const std::byte* stored = store_->record(streams_->slot(stream, seq - back)) + offset;
      if (!equal_frame(obs.frames, data, obs.frames.stack - 1 - back, stored)) return false;
    }
  }
  return true;
}

bool Writer::next_is_shifted(const Source* sources, std::size_t row) const {
  for (const ObsField& obs : obs_fields_) {
    const Source& now = sources[obs.field];
    const Source& next = sources[obs.next_field];
    const std::byte* now_data = now.data + row * now.stride;
    const std::byte* next_data = next.data + row * next.stride;
    const FrameShape& shape = obs.frames;
    for (std::size_t o = 0; o < shape.outer; ++o) {
      const std::byte* older = now_data + (o * shape.stack + 1) * shape.inner;
      const std::byte* newer = next_data + o * shape.stack * shape.inner;
      if (std::memcmp(older, newer, (shape.stack - 1) * shape.inner) != 0) return false;
    }
  }
  return true;
}

std::size_t Writer::push_block(const Source* sources, std::size_t n) {
  Streams::Head& head = streams_->head(0);
  const std::size_t first = head.top_position;
  if (n == 1) {
    write_fields(first, sources, 0);
  } else {
    write_rows(first, sources, n);
  }
  streams_->advance(0, n, [](std::size_t) {});
  streams_->add_untracked(n);
  return first;
}

void Writer::write_rows(std::size_t first, const Source* sources, std::size_t n) {
  const std::size_t capacity = store_->slots();
  const std::size_t skipped = n > capacity ? n - capacity : 0;
  std::size_t slot = (first + skipped) % capacity;
  for (std::size_t row = skipped; row < n;) {
    const std::size_t count = std::min(n - row, capacity - slot);
    for (std::size_t i = 0; i < plain_fields_.size(); ++i) {
      const Source& source = sources[plain_fields_[i]];
      columns_[i].data = source.data + row * source.stride;
      columns_[i].stride = source.stride;
    }
    kernels().rows.scatter(store_->record(slot), store_->stride(), columns_.data(), columns_.size(),
                           count);
    row += count;
    slot = 0;
  }
}

}  // namespace sharpwave
