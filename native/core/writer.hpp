// Puts steps into a store: the only place that knows how the stream layout shares observations
// between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/row_store.hpp"
#include "core/schema.hpp"
#include "core/streams.hpp"

namespace sharpwave {

// The rows of a push by field: row i of field f lies at data + i * stride, already of the field's
// dtype.
struct Source {
  const std::byte* data;
  std::size_t stride;
};

class Writer {
 public:
  Writer(const Schema& schema, Layout layout, RowStore* store, Streams* streams);

  // Writes one step of a stream and returns where. `evict(slot)` is called for every step that
  // leaves.
  template <typename Evict>
  Anchor push(std::uint32_t stream, const Source* sources, std::size_t row, Evict&& evict) {
    const bool ended = flag(terminated_, sources, row) || flag(truncated_, sources, row);
    return layout_ == Layout::transition ? push_transition(stream, sources, row, ended, evict)
                                         : push_stream(stream, sources, row, ended, evict);
  }

  // Writes some plain fields of a step over.
  void rewrite(std::size_t slot, const std::vector<std::size_t>& fields, const Source* sources,
               std::size_t row);

  // Writes n consecutive rows of an untracked store. Rows that the batch itself would overwrite are
  // skipped. Returns the slot of the first row.
  std::size_t push_block(const Source* sources, std::size_t n);

 private:
  bool flag(int field, const Source* sources, std::size_t row) const {
    if (field < 0) return false;
    const Source& source = sources[field];
    return any_byte(source.data + row * source.stride,
                    store_->column(static_cast<std::size_t>(field)).bytes);
  }
  static bool any_byte(const std::byte* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (data[i] != std::byte{0}) return true;
    }
    return false;
  }

  template <typename Evict>
  Anchor push_transition(std::uint32_t stream, const Source* sources, std::size_t row, bool ended,
                         Evict&& evict) {
    Streams::Head& head = streams_->head(stream);
    const Anchor anchor{head.top, stream};
    streams_->advance(stream, 1, evict);
    write_fields(streams_->slot(anchor), sources, row);
    streams_->add_step(anchor, !head.open, ended, false);
    head.open = !ended;
    return anchor;
  }

  template <typename Evict>
  Anchor push_stream(std::uint32_t stream, const Source* sources, std::size_t row, bool ended,
                     Evict&& evict) {
    Streams::Head& head = streams_->head(stream);
    const bool continues = head.pending && holds_obs(stream, head.top - 1, sources, row);
    if (!continues) {
      // The pending observation stays as the end of its episode; this one starts a segment of its
      // own.
      if (head.pending && head.open) streams_->set_last({head.top - 2, stream});
      head.open = false;
      streams_->advance(stream, stack_, evict);
      write_obs(stream, head.top - 1, sources, row, Role::obs, stack_);
    }
    const Anchor anchor{head.top - 1, stream};
    const bool shifted = stack_ == 1 || next_is_shifted(sources, row);
    const std::uint64_t frames = shifted ? 1 : stack_;
    streams_->advance(stream, frames, evict);
    write_fields(streams_->slot(anchor), sources, row);
    write_obs(stream, head.top - 1, sources, row, Role::next_obs, frames);
    streams_->add_step(anchor, !head.open, ended || !shifted, !shifted);
    head.pending = true;
    head.open = !ended && shifted;
    return anchor;
  }

  // Many rows, by a kernel.
  void write_rows(std::size_t first, const Source* sources, std::size_t n);
  // Everything but observations that the stream layout writes by write_obs.
  void write_fields(std::size_t slot, const Source* sources, std::size_t row);
  // The newest `frames` frames of every field of this role, the newest one at `seq`.
  void write_obs(std::uint32_t stream, std::uint64_t seq, const Source* sources, std::size_t row,
                 Role role, std::uint64_t frames);
  // True when the observation stored at `seq` is the one being pushed.
  bool holds_obs(std::uint32_t stream, std::uint64_t seq, const Source* sources,
                 std::size_t row) const;
  // True when next_obs is obs moved on by one frame.
  bool next_is_shifted(const Source* sources, std::size_t row) const;

  struct ObsField {
    int field;
    int next_field;  // its next_obs
    FrameShape frames;
  };

  Layout layout_;
  RowStore* store_;
  Streams* streams_;
  std::uint64_t stack_;
  int terminated_;
  int truncated_;
  std::vector<std::size_t> plain_fields_;  // written by write_fields
  std::vector<ScatterColumn>
      columns_;  // the same for write_rows; a writer is used by one thread at a time
  std::vector<ObsField> obs_fields_;  // stream layout only
};

}  // namespace sharpwave
