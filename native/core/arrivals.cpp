#include "core/arrivals.hpp"

#include <algorithm>
#include <cstring>

namespace sharpwave {
namespace {

// Calls row(seq, is_end) for the rows of a window until it is full or there are no more; returns
// how many there are. `is_end` marks the observation after the step `seq`, the last of its episode.
template <typename Row>
std::uint32_t walk(const View& view, const Streams& streams, Anchor anchor, Row&& row) {
  const std::uint32_t stream = anchor.stream;
  std::uint64_t seq = anchor.seq;
  bool is_end = false;
  std::uint32_t there = 0;
  while (there < view.length) {
    row(seq, is_end);
    ++there;
    if (!is_end && streams.is_last({seq, stream})) {
      is_end = true;
      continue;
    }
    if (is_end && !view.cross) break;
    is_end = false;
    seq = streams.next_step({seq + 1, stream});
    if (seq == kNoSlot) break;
  }
  return there;
}

// The last observations of episodes in the transition layout, which are part of their last step.
void emit_ends(const Schema& schema, const RowStore& store, const Slots& slots,
               const BatchOut& out) {
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    if (schema.fields[i].role != Role::next_obs) continue;
    std::byte* target = out.fields[static_cast<std::size_t>(schema.fields[i].twin)];
    if (target == nullptr) continue;
    const Column& column = store.column(i);
    for (std::size_t row = 0; row < slots.steps.size(); ++row) {
      if (!slots.is_end[row]) continue;
      std::memcpy(target + row * column.bytes, store.record(slots.last[row]) + column.offset,
                  column.bytes);
    }
  }
}

bool any_byte(const std::byte* data, std::size_t bytes) {
  return std::any_of(data, data + bytes, [](std::byte b) { return b != std::byte{0}; });
}

void emit_marks(const Schema& schema, const RowStore& store, const Streams& streams,
                const std::vector<Anchor>& anchors, const Slots& slots, const BatchOut& out) {
  const std::size_t rows = slots.steps.size();
  const std::size_t length = rows / anchors.size();
  const int terminated = schema.find(Role::terminated);
  for (std::size_t row = 0; row < rows; ++row) {
    const bool is_end = slots.is_end[row] != 0;
    const bool is_there = slots.steps[row] != kNoSlot;
    if (out.mask != nullptr) out.mask[row] = is_there;
    const Anchor step{slots.steps[row], anchors[row / length].stream};
    const bool is_step = is_there && !is_end;
    if (out.is_first != nullptr) out.is_first[row] = is_step && streams.is_first(step);
    if (out.is_last != nullptr) out.is_last[row] = is_end;
    if (out.is_terminal != nullptr) {
      out.is_terminal[row] = 0;
      if (is_end && terminated >= 0) {
        const Column& column = store.column(static_cast<std::size_t>(terminated));
        out.is_terminal[row] =
            any_byte(store.record(slots.last[row]) + column.offset, column.bytes);
      }
    }
    if (out.indices != nullptr) out.indices[row] = is_step ? streams.id(step) : kNoStep;
  }
}

}  // namespace

bool accepts_arrivals(const View& view, const Streams& streams, Anchor anchor) {
  const bool is_first = streams.is_first(anchor);
  if (!is_first && !streams.is_live({anchor.seq - 1, anchor.stream})) return false;
  if (view.stride > 1 && (anchor.seq - streams.first_of(anchor)) % view.stride != 0) return false;
  if (view.pad == View::Pad::tail) return true;
  if (walk(view, streams, anchor, [](std::uint64_t, bool) {}) == view.length) return true;
  return view.pad == View::Pad::whole && is_first;
}

std::uint64_t last_of_arrivals(const View& view, const Streams& streams, Anchor anchor) {
  std::uint64_t last = anchor.seq;
  walk(view, streams, anchor, [&](std::uint64_t seq, bool) { last = seq; });
  return last;
}

void resolve_arrivals(const View& view, const Schema& schema, Layout layout, const Streams& streams,
                      const std::vector<Anchor>& anchors, Slots* slots) {
  const auto stack = static_cast<std::uint64_t>(schema.max_stack());
  const std::size_t n_rows = anchors.size() * view.length;
  slots->steps.assign(n_rows, kNoSlot);
  slots->is_end.assign(n_rows, 0);
  slots->current.assign(n_rows, kNoSlot);
  slots->next.assign(n_rows, kNoSlot);
  slots->last.assign(n_rows, kNoSlot);
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const std::uint32_t stream = anchors[i].stream;
    std::size_t row = i * view.length;
    walk(view, streams, anchors[i], [&](std::uint64_t seq, bool is_end) {
      const Anchor step{seq, stream};
      const std::size_t slot = streams.slot(step);
      slots->steps[row] = seq;
      slots->is_end[row] = is_end;
      if (is_end) {
        slots->last[row] = slot;
        if (layout == Layout::stream) {
          slots->next[row] = streams.slot({seq + (streams.jumps(step) ? stack : 1), stream});
        }
      } else {
        slots->current[row] = slots->next[row] = slot;
        const Anchor before{seq - 1, stream};
        if (!streams.is_first(step) && streams.is_live(before)) {
          slots->last[row] = streams.slot(before);
        }
      }
      ++row;
    });
  }
}

void emit_arrivals(const Schema& schema, Layout layout, const RowStore& store,
                   const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
                   const BatchOut& out) {
  if (anchors.empty()) return;
  const std::size_t rows = slots.steps.size();
  static thread_local std::vector<GatherColumn> columns;
  columns.clear();
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    if (out.fields[i] == nullptr) continue;
    const Field& field = schema.fields[i];
    const bool led_here = field.role == Role::action || field.role == Role::reward;
    const auto& source = field.role == Role::obs ? slots.next
                         : led_here              ? slots.last
                                                 : slots.current;
    const GatherColumn column{store.column(i), source.data(), out.fields[i]};
    if (layout == Layout::stream && field.stack > 1) {
      gather_stack(store, column, frame_shape(field), streams.slots_per_stream(), rows);
    } else {
      columns.push_back(column);
    }
  }
  std::sort(columns.begin(), columns.end(),
            [](const GatherColumn& a, const GatherColumn& b) { return a.slots < b.slots; });
  gather_windows(store, columns.data(), columns.size(), rows);
  if (layout == Layout::transition) emit_ends(schema, store, slots, out);
  emit_marks(schema, store, streams, anchors, slots, out);
}

}  // namespace sharpwave
