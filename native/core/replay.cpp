#include "core/replay.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace sharpwave {
namespace {

ReplayOptions validated(ReplayOptions options) {
  options.schema.validate();
  if (options.capacity == 0) throw std::invalid_argument("capacity must be at least 1, got 0");
  if (options.n_streams > options.capacity) {
    throw std::invalid_argument("capacity must be at least n_envs, " +
                                std::to_string(options.n_streams) + ", got " +
                                std::to_string(options.capacity));
  }
  if (options.n_streams >= (std::size_t{1} << 32)) {
    throw std::invalid_argument("n_envs must be less than 2**32");
  }
  if (options.layout == Layout::stream) {
    if (options.n_streams == 0) throw std::invalid_argument("stream rows need n_envs");
    for (const Field& field : options.schema.fields) {
      if (field.role != Role::obs) continue;
      const bool has_next = std::any_of(
          options.schema.fields.begin(), options.schema.fields.end(), [&](const Field& other) {
            return other.role == Role::next_obs &&
                   &options.schema.fields[static_cast<std::size_t>(other.twin)] == &field;
          });
      if (!has_next) {
        throw std::invalid_argument("stream rows need a next observation for field '" + field.name +
                                    "'");
      }
    }
    // A step and the next observation that is stored apart from it must fit beside each other.
    const auto stack = static_cast<std::size_t>(options.schema.max_stack());
    if (options.capacity / options.n_streams < stack) {
      throw std::invalid_argument(
          "capacity must be at least " + std::to_string(stack * options.n_streams) +
          ", a stack of frames for every environment, got " + std::to_string(options.capacity));
    }
  } else if (options.schema.max_stack() > 1) {
    throw std::invalid_argument("frame stacks need stream rows: pass n_envs");
  }
  if (options.capacity > (std::size_t{1} << 48)) throw std::bad_alloc();
  return options;
}

// Every stream holds capacity / n_streams steps; the stream layout adds the pending observation and
// the older frames of the oldest stack.
std::size_t slots_per_stream(const ReplayOptions& options) {
  const std::size_t streams = std::max<std::size_t>(options.n_streams, 1);
  const std::size_t steps = options.capacity / streams;
  if (options.layout == Layout::transition) return steps;
  return steps + static_cast<std::size_t>(options.schema.max_stack());
}

}  // namespace

Replay::Replay(ReplayOptions options)
    : options_(validated(std::move(options))),
      store_(options_.schema, options_.layout,
             slots_per_stream(options_) * std::max<std::size_t>(options_.n_streams, 1)),
      streams_(std::max<std::size_t>(options_.n_streams, 1), slots_per_stream(options_),
               options_.layout == Layout::stream
                   ? static_cast<std::size_t>(options_.schema.max_stack()) - 1
                   : 0,
               options_.n_streams > 0),
      writer_(options_.schema, options_.layout, &store_, &streams_) {
  if (options_.priorities) {
    priorities_.emplace(store_.slots(), options_.priorities->kind, options_.priorities->alpha);
    set_beta(options_.priorities->beta);
  }
}

void Replay::push(std::size_t n, const Source* sources, const std::uint32_t* streams,
                  const float* priorities) {
  // Pushes are alone under the exclusive lock: no atomic addition is needed.
  counters_.pushed.store(counters_.pushed.load(std::memory_order_relaxed) + n,
                         std::memory_order_relaxed);
  if (!streams_.tracked()) {
    const std::size_t first = writer_.push_block(sources, n);
    if (!priorities_) return;
    const std::size_t capacity = store_.slots();
    std::size_t row = n > capacity ? n - capacity : 0;
    while (row < n) {  // a range of slots at a time: the ring wraps at most once
      const std::size_t slot = (first + row) % capacity;
      const std::size_t count = std::min(n - row, capacity - slot);
      priorities_->push(slot, count, priorities == nullptr ? nullptr : priorities + row);
      row += count;
    }
    return;
  }
  const auto evict = [&](std::size_t slot) {
    if (priorities_) priorities_->remove(slot);
  };
  const auto count = static_cast<std::uint32_t>(streams_.count());
  std::uint32_t stream = 0;
  for (std::size_t row = 0; row < n; ++row) {
    const std::uint32_t target = streams != nullptr ? streams[row] : stream;
    const Anchor anchor = writer_.push(target, sources, row, evict);
    if (priorities_) {
      priorities_->push(streams_.slot(anchor), 1,
                        priorities == nullptr ? nullptr : priorities + row);
    }
    if (++stream == count) stream = 0;
  }
}

void Replay::clear() {
  streams_.clear();
  if (priorities_) priorities_->clear();
}

void Replay::read(const View& view, const std::vector<Anchor>& anchors, Slots* slots,
                  const BatchOut& out) {
  resolve(view, options_.schema, options_.layout, streams_, anchors, slots);
  emit(view, options_.schema, options_.layout, store_, streams_, anchors, *slots, out);
}

void Replay::find(const std::uint64_t* ids, std::size_t n, std::vector<Anchor>* anchors) const {
  anchors->resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Anchor anchor = streams_.anchor(ids[i]);
    if (!streams_.is_live(anchor)) {
      throw std::out_of_range("indices must be of steps in the buffer, got " +
                              std::to_string(ids[i]));
    }
    (*anchors)[i] = anchor;
  }
}

std::vector<std::uint64_t> Replay::ids(const View& view) const {
  std::vector<std::uint64_t> found;
  found.reserve(streams_.live());
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    const Streams::Head& head = streams_.head(stream);
    for (std::uint64_t seq = head.floor; seq < head.top; ++seq) {
      const Anchor anchor{seq, stream};
      if (streams_.is_live(anchor) && accepts(view, streams_, anchor)) {
        found.push_back(streams_.id(anchor));
      }
    }
  }
  return found;
}

std::size_t Replay::update_priorities(const std::uint64_t* ids, const float* priorities,
                                      std::size_t n) {
  static thread_local std::vector<std::uint64_t> slots;
  static thread_local std::vector<float> kept;
  slots.clear();
  kept.clear();
  for (std::size_t i = 0; i < n; ++i) {
    const Anchor anchor = streams_.anchor(ids[i]);
    const Streams::Head& head = streams_.head(anchor.stream);
    if (anchor.seq < head.floor) continue;  // overwritten since the draw
    if (!streams_.is_live(anchor)) {
      throw std::out_of_range("indices must be of steps that were pushed, got " +
                              std::to_string(ids[i]));
    }
    slots.push_back(streams_.slot(anchor));
    kept.push_back(priorities[i]);
  }
  priorities_->update(slots.data(), kept.data(), slots.size());
  const std::size_t stale = n - slots.size();
  counters_.stale_updates.fetch_add(stale, std::memory_order_relaxed);
  return stale;
}

bool Replay::is_full() const {
  for (std::size_t stream = 0; stream < streams_.count(); ++stream) {
    const Streams::Head& head = streams_.head(stream);
    if (head.top - head.floor < streams_.slots_per_stream() - streams_.lead()) return false;
  }
  return true;
}

std::size_t Replay::bytes() const {
  return store_.bytes() + streams_.bytes() + (priorities_ ? priorities_->bytes() : 0);
}

double Replay::read_cost(std::size_t rows) const {
  // About one cache line per 10 ns from memory.
  return static_cast<double>(rows) * (20.0 + static_cast<double>(store_.stride()) / 6.0);
}

}  // namespace sharpwave
