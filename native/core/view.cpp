#include "core/view.hpp"

#include <algorithm>
#include <cstring>

#include "core/arrivals.hpp"

namespace sharpwave {
namespace {

// The slot that holds the observation after a step of stream rows.
std::uint64_t next_slot(std::uint64_t max_stack, const Streams& streams, Anchor anchor) {
  return streams.slot({anchor.seq + (streams.jumps(anchor) ? max_stack : 1), anchor.stream});
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
      seq = streams.next_step({seq + 1, anchor.stream});
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

// gamma ** 0 ... gamma ** n, n at most the steps of a stream.
const std::vector<double>& powers_of(const View& view, const Streams& streams) {
  static thread_local std::vector<double> powers;
  const std::size_t n = std::min<std::size_t>(view.n, streams.slots_per_stream());
  powers.resize(n + 1);
  powers[0] = 1.0;
  for (std::size_t i = 0; i < n; ++i) powers[i + 1] = powers[i] * view.gamma;
  return powers;
}

template <typename T>
void sum_rewards(const std::vector<double>& powers, const RowStore& store, const Column& column,
                 const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
                 std::byte* out) {
  constexpr std::size_t kDistance = 8;  // anchors between the prefetch of their rewards and the sum
  const std::size_t rows = anchors.size();
  const std::size_t ring = streams.slots_per_stream();
  const std::byte* base = store.record(0) + column.offset;
  for (std::size_t row = 0; row < rows; ++row) {
    if (row + kDistance < rows) {
      const std::byte* ahead = base + slots.current[row + kDistance] * store.stride();
      for (std::uint32_t step = 0; step < slots.taken[row + kDistance] && step < 8; ++step) {
        __builtin_prefetch(ahead + step * store.stride());
      }
    }
    const std::uint64_t ring_end = (anchors[row].stream + std::uint64_t{1}) * ring;
    for (std::size_t item = 0; item < column.bytes; item += sizeof(T)) {
      double sum = 0.0;
      std::uint64_t slot = slots.current[row];
      for (std::uint32_t step = 0; step < slots.taken[row]; ++step) {
        T reward;
        std::memcpy(&reward, base + slot * store.stride() + item, sizeof(T));
        sum += powers[step] * static_cast<double>(reward);
        if (++slot == ring_end) slot -= ring;
      }
      const T result = static_cast<T>(sum);
      std::memcpy(out + row * column.bytes + item, &result, sizeof(T));
    }
  }
}

void emit_discounts(const View& view, const Schema& schema, const RowStore& store,
                    const Streams& streams, const Slots& slots, float* discounts) {
  const bool n_step = view.kind == View::Kind::n_step;
  const auto& ends = n_step ? slots.last : slots.current;
  const auto& powers = powers_of(view, streams);
  const int terminated = schema.find(Role::terminated);
  for (std::size_t row = 0; row < ends.size(); ++row) {
    bool over = ends[row] == kNoSlot;
    if (!over && terminated >= 0) {
      const Column& column = store.column(static_cast<std::size_t>(terminated));
      const std::byte* flag = store.record(ends[row]) + column.offset;
      over = std::any_of(flag, flag + column.bytes, [](std::byte b) { return b != std::byte{0}; });
    }
    discounts[row] =
        over ? 0.0F : static_cast<float>(n_step ? powers[slots.taken[row]] : view.gamma);
  }
}

void emit_is_first(const View& view, const Streams& streams, const std::vector<Anchor>& anchors,
                   const Slots& slots, std::uint8_t* is_first) {
  std::memset(is_first, 0, slots.steps.size());
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    for (std::size_t row = i * view.rows(); row < (i + 1) * view.rows(); ++row) {
      if (slots.steps[row] == kNoSlot) continue;
      is_first[row] = streams.is_first({slots.steps[row], anchors[i].stream});
      if (!view.cross) break;  // the rest is of the same episode
    }
  }
}

// Windows of one episode are runs of neighboring slots.
void resolve_windows(const View& view, std::uint64_t stack, bool has_next, const Streams& streams,
                     const std::vector<Anchor>& anchors, Slots* slots) {
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const std::size_t begin = i * view.rows();
    const std::uint32_t stream = anchors[i].stream;
    std::uint64_t* steps = slots->steps.data() + begin;
    window(view, streams, anchors[i], steps);
    const std::uint64_t ring_end = (stream + std::uint64_t{1}) * streams.slots_per_stream();
    std::uint64_t slot = kNoSlot;  // of the row before
    for (std::size_t j = 0; j < view.rows(); ++j) {
      const bool follows = j > 0 && slot != kNoSlot && steps[j] == steps[j - 1] + 1;
      if (steps[j] == kNoSlot) {
        slot = kNoSlot;
      } else if (follows) {
        if (++slot == ring_end) slot -= streams.slots_per_stream();
      } else {
        slot = streams.slot({steps[j], stream});
      }
      slots->current[begin + j] = slot;
      if (!has_next) continue;
      slots->next[begin + j] = slot == kNoSlot ? kNoSlot
                               : stack > 1     ? next_slot(stack, streams, {steps[j], stream})
                               : slot + 1 == ring_end ? slot + 1 - streams.slots_per_stream()
                                                      : slot + 1;
    }
  }
}

}  // namespace

bool accepts(const View& view, const Streams& streams, Anchor anchor) {
  if (view.kind != View::Kind::sequence) return true;
  if (view.arrivals) return accepts_arrivals(view, streams, anchor);
  if (view.stride > 1 && (anchor.seq - streams.first_of(anchor)) % view.stride != 0) return false;
  if (view.pad == View::Pad::tail) return true;
  bool full_after = false;
  bool full_before = true;
  if (view.cross) {
    static thread_local std::vector<std::uint64_t> steps;
    steps.resize(view.rows());
    full_after = window(view, streams, anchor, steps.data()) == view.length;
    full_before = view.burn_in == 0 || steps[0] != kNoSlot;
  } else {
    full_after = streams.last_of(anchor, view.length) - anchor.seq + 1 == view.length;
    full_before = view.burn_in == 0 || anchor.seq - streams.first_of(anchor) >= view.burn_in;
  }
  if (full_after && full_before) return true;
  return view.pad == View::Pad::whole && !full_after && streams.first_of(anchor) == anchor.seq;
}

std::uint64_t last_step(const View& view, const Streams& streams, Anchor anchor) {
  if (view.kind != View::Kind::sequence) return anchor.seq;
  if (view.arrivals) return last_of_arrivals(view, streams, anchor);
  static thread_local std::vector<std::uint64_t> steps;
  steps.resize(view.rows());
  window(view, streams, anchor, steps.data());
  return steps.back();
}

void resolve(const View& view, const Schema& schema, Layout layout, const Streams& streams,
             const std::vector<Anchor>& anchors, Slots* slots) {
  if (view.arrivals) return resolve_arrivals(view, schema, layout, streams, anchors, slots);
  const auto stack = static_cast<std::uint64_t>(schema.max_stack());
  const std::size_t rows = anchors.size() * view.rows();
  slots->current.resize(rows);
  // A transition row holds its own next observation: no second set of slots is needed.
  const bool has_next = layout == Layout::stream;
  slots->next.resize(has_next ? rows : 0);
  if (view.kind == View::Kind::transition) {
    for (std::size_t i = 0; i < rows; ++i) {
      slots->current[i] = streams.slot(anchors[i]);
      if (has_next) slots->next[i] = next_slot(stack, streams, anchors[i]);
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
      if (has_next) slots->next[i] = next_slot(stack, streams, last);
      slots->taken[i] = static_cast<std::uint32_t>(last.seq - anchors[i].seq + 1);
    }
    return;
  }
  slots->steps.resize(rows);
  resolve_windows(view, stack, has_next, streams, anchors, slots);
}

void emit(const View& view, const Schema& schema, Layout layout, const RowStore& store,
          const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
          const BatchOut& out) {
  if (view.arrivals) {
    return emit_arrivals(schema, layout, store, streams, anchors, slots, out);
  }
  const std::size_t rows = slots.current.size();
  const bool n_step = view.kind == View::Kind::n_step;
  static thread_local std::vector<GatherColumn> columns;
  columns.clear();
  for (std::size_t i = 0; i < schema.fields.size(); ++i) {
    std::byte* target = out.fields[i];
    if (target == nullptr) continue;
    const Field& field = schema.fields[i];
    const bool flag = field.role == Role::terminated || field.role == Role::truncated;
    const bool next = field.role == Role::next_obs;
    const auto& source = next && layout == Layout::stream ? slots.next
                         : n_step && (next || flag)       ? slots.last
                                                          : slots.current;
    const GatherColumn column{store.column(i), source.data(), target};
    if (layout == Layout::stream && field.stack > 1) {
      gather_stack(store, column, frame_shape(field), streams.slots_per_stream(), rows);
    } else if (n_step && field.role == Role::reward) {
      if (field.dtype == DType::float64) {
        sum_rewards<double>(powers_of(view, streams), store, column.column, streams, anchors, slots,
                            target);
      } else {
        sum_rewards<float>(powers_of(view, streams), store, column.column, streams, anchors, slots,
                           target);
      }
    } else {
      columns.push_back(column);
    }
  }
  std::sort(columns.begin(), columns.end(),
            [](const GatherColumn& a, const GatherColumn& b) { return a.slots < b.slots; });
  const auto copy = view.kind == View::Kind::sequence ? gather_windows : gather;
  copy(store, columns.data(), columns.size(), rows);
  if (out.indices != nullptr) {
    for (std::size_t i = 0; i < anchors.size(); ++i) out.indices[i] = streams.id(anchors[i]);
  }
  if (out.discounts != nullptr) emit_discounts(view, schema, store, streams, slots, out.discounts);
  if (out.mask != nullptr) {
    for (std::size_t row = 0; row < rows; ++row) out.mask[row] = slots.current[row] != kNoSlot;
  }
  if (out.is_first != nullptr) emit_is_first(view, streams, anchors, slots, out.is_first);
}

}  // namespace sharpwave
