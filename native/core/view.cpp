#include "core/view.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sharpwave {
namespace {

// The slot that holds the observation after a step.
std::uint64_t next_slot(Layout layout, std::uint64_t max_stack, const Streams& streams,
                        Anchor anchor) {
  if (layout == Layout::transition) return streams.slot(anchor);
  return streams.slot(anchor.stream, anchor.seq + (streams.jumps(anchor) ? max_stack : 1));
}

// The next step of the stream at or after seq that is not a bare observation, or kNoSlot.
std::uint64_t next_live(const Streams& streams, std::uint32_t stream, std::uint64_t seq) {
  const std::uint64_t top = streams.head(stream).top;
  for (; seq < top; ++seq) {
    if (streams.is_live({seq, stream})) return seq;
  }
  return kNoSlot;
}

// Fills the seqs of a window's rows; rows outside the episode (or the data) get kNoSlot.
// Returns the number of rows from the anchor on that are there.
std::uint32_t window(const View& view, const Streams& streams, Anchor anchor,
                     std::uint64_t* steps) {
  std::uint32_t there = 0;
  if (view.cross) {
    std::uint64_t seq = anchor.seq;
    for (std::uint32_t i = 0; i < view.length; ++i) {
      steps[view.burn_in + i] = seq;
      if (seq == kNoSlot) continue;
      ++there;
      seq = next_live(streams, anchor.stream, seq + 1);
    }
    seq = anchor.seq;
    const std::uint64_t floor = streams.head(anchor.stream).floor;
    for (std::uint32_t i = view.burn_in; i-- > 0;) {
      bool found = false;
      while (seq != kNoSlot && seq > floor && !found)
        found = streams.is_live({--seq, anchor.stream});
      if (!found) seq = kNoSlot;
      steps[i] = seq;
    }
    return there;
  }
  const std::uint64_t last = streams.last_of(anchor, view.length);
  there = static_cast<std::uint32_t>(last - anchor.seq + 1);
  for (std::uint32_t i = 0; i < view.length; ++i) {
    steps[view.burn_in + i] = i < there ? anchor.seq + i : kNoSlot;
  }
  if (view.burn_in > 0) {
    const std::uint64_t before = anchor.seq - streams.first_of(anchor);
    for (std::uint32_t i = 0; i < view.burn_in; ++i) {
      const std::uint64_t back = view.burn_in - i;
      steps[i] = back <= before ? anchor.seq - back : kNoSlot;
    }
  }
  return there;
}

template <typename T>
void sum_rewards(const View& view, const HeapStore& store, const Column& column,
                 const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
                 std::byte* out) {
  for (std::size_t row = 0; row < anchors.size(); ++row) {
    const std::uint64_t ring_end =
        (anchors[row].stream + std::uint64_t{1}) * streams.slots_per_stream();
    for (std::size_t item = 0; item < column.bytes; item += sizeof(T)) {
      double sum = 0.0;
      double discount = 1.0;
      std::uint64_t slot = slots.current[row];
      for (std::uint32_t step = 0; step < slots.taken[row]; ++step) {
        T reward;
        std::memcpy(&reward, store.record(slot) + column.offset + item, sizeof(T));
        sum += discount * static_cast<double>(reward);
        discount *= view.gamma;
        if (++slot == ring_end) slot -= streams.slots_per_stream();
      }
      const T result = static_cast<T>(sum);
      std::memcpy(out + row * column.bytes + item, &result, sizeof(T));
    }
  }
}

bool flag_at(const HeapStore& store, const Schema& schema, Role role, std::uint64_t slot) {
  const int field = schema.find(role);
  if (field < 0) return false;
  const Column& column = store.column(static_cast<std::size_t>(field));
  const std::byte* flag = store.record(slot) + column.offset;
  return std::any_of(flag, flag + column.bytes, [](std::byte b) { return b != std::byte{0}; });
}

void emit_discounts(const View& view, const Schema& schema, const HeapStore& store,
                    const Slots& slots, float* discounts) {
  const bool n_step = view.kind == View::Kind::n_step;
  const auto& ends = n_step ? slots.last : slots.current;
  for (std::size_t row = 0; row < ends.size(); ++row) {
    if (ends[row] == kNoSlot) {
      discounts[row] = 0.0F;
      continue;
    }
    const double gamma = n_step ? std::pow(view.gamma, slots.taken[row]) : view.gamma;
    discounts[row] =
        flag_at(store, schema, Role::terminated, ends[row]) ? 0.0F : static_cast<float>(gamma);
  }
}

}  // namespace

bool accepts(const View& view, const Streams& streams, Anchor anchor) {
  if (view.kind != View::Kind::sequence) return true;
  if (view.stride > 1 && (anchor.seq - streams.first_of(anchor)) % view.stride != 0) return false;
  if (view.pad == View::Pad::tail) return true;
  static thread_local std::vector<std::uint64_t> steps;
  steps.resize(view.rows());
  const bool full_after = window(view, streams, anchor, steps.data()) == view.length;
  const bool full_before = view.burn_in == 0 || steps[0] != kNoSlot;
  if (full_after && full_before) return true;
  return view.pad == View::Pad::whole && !full_after && streams.first_of(anchor) == anchor.seq;
}

void resolve(const View& view, const Schema& schema, Layout layout, const Streams& streams,
             const std::vector<Anchor>& anchors, Slots* slots) {
  const auto stack = static_cast<std::uint64_t>(schema.max_stack());
  const std::size_t rows = anchors.size() * view.rows();
  slots->current.resize(rows);
  slots->next.resize(rows);
  if (view.kind == View::Kind::transition) {
    for (std::size_t i = 0; i < rows; ++i) {
      slots->current[i] = streams.slot(anchors[i]);
      slots->next[i] = next_slot(layout, stack, streams, anchors[i]);
    }
    return;
  }
  if (view.kind == View::Kind::n_step) {
    slots->last.resize(rows);
    slots->taken.resize(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      const Anchor last{streams.last_of(anchors[i], view.n), anchors[i].stream};
      slots->current[i] = streams.slot(anchors[i]);
      slots->last[i] = streams.slot(last);
      slots->next[i] = next_slot(layout, stack, streams, last);
      slots->taken[i] = static_cast<std::uint32_t>(last.seq - anchors[i].seq + 1);
    }
    return;
  }
  slots->steps.resize(rows);
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    std::uint64_t* steps = slots->steps.data() + i * view.rows();
    window(view, streams, anchors[i], steps);
    for (std::size_t j = 0; j < view.rows(); ++j) {
      const std::size_t row = i * view.rows() + j;
      const Anchor step{steps[j], anchors[i].stream};
      slots->current[row] = steps[j] == kNoSlot ? kNoSlot : streams.slot(step);
      slots->next[row] = steps[j] == kNoSlot ? kNoSlot : next_slot(layout, stack, streams, step);
    }
  }
}

void emit(const View& view, const Schema& schema, Layout layout, const HeapStore& store,
          const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
          const BatchOut& out) {
  const std::size_t rows = slots.current.size();
  const bool n_step = view.kind == View::Kind::n_step;
  static thread_local std::vector<GatherColumn> columns;
  columns.clear();
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    std::byte* target = out.fields[i];
    if (target == nullptr) continue;
    const Field& field = schema.fields[i];
    const bool flag = field.role == Role::terminated || field.role == Role::truncated;
    const auto& source = field.role == Role::next_obs ? slots.next
                         : n_step && flag             ? slots.last
                                                      : slots.current;
    const GatherColumn column{store.column(i), source.data(), target};
    if (layout == Layout::stream && field.stack > 1) {
      gather_stack(store, column, frame_shape(field), streams.slots_per_stream(), rows);
    } else if (n_step && field.role == Role::reward) {
      if (field.dtype == DType::float64) {
        sum_rewards<double>(view, store, column.column, streams, anchors, slots, target);
      } else {
        sum_rewards<float>(view, store, column.column, streams, anchors, slots, target);
      }
    } else {
      columns.push_back(column);
    }
  }
  // Columns that read the same slots stand together, so that the prefetch visits each set once.
  std::stable_sort(columns.begin(), columns.end(),
                   [](const GatherColumn& a, const GatherColumn& b) { return a.slots < b.slots; });
  gather(store, columns.data(), columns.size(), rows);
  if (out.indices != nullptr) {
    for (std::size_t i = 0; i < anchors.size(); ++i) out.indices[i] = streams.id(anchors[i]);
  }
  if (out.discounts != nullptr) emit_discounts(view, schema, store, slots, out.discounts);
  if (out.mask != nullptr) {
    for (std::size_t row = 0; row < rows; ++row) out.mask[row] = slots.current[row] != kNoSlot;
  }
  if (out.is_first != nullptr) {
    for (std::size_t row = 0; row < rows; ++row) {
      const Anchor step{slots.steps[row], anchors[row / view.rows()].stream};
      out.is_first[row] = step.seq != kNoSlot && streams.is_first(step);
    }
  }
}

}  // namespace sharpwave
