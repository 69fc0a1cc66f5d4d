#include "core/selector.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/replay.hpp"

namespace sharpwave {
namespace {

constexpr std::uint64_t kSeedDomain =
    0x736565645F737721ULL;  // keeps given seeds apart from the buffer's own
constexpr std::uint32_t kMaxAttempts = 64;

[[noreturn]] void throw_nothing_to_draw() {
  throw std::invalid_argument(
      "no step in the buffer fits the view: episodes are shorter than its window");
}

}  // namespace

Philox Replay::generator(std::optional<std::uint64_t> seed) {
  if (seed) return {*seed ^ kSeedDomain, 0};
  return {options_.seed, counters_.calls().fetch_add(1, std::memory_order_relaxed) + 1};
}

void Replay::draw(const Selector& selector, const View& view, const Philox& generator,
                  std::size_t batch, std::vector<Anchor>* anchors) {
  anchors->resize(batch);
  if (batch == 0) return;
  if (streams_.live() == 0) throw std::invalid_argument("batch_size must be 0 for an empty buffer");
  if (selector.fresh > 0) {
    draw_fresh(selector, view, generator, batch, anchors);
  } else {
    draw_kind(selector, view, generator, batch, anchors);
  }
  std::uint64_t age = 0;
  for (const Anchor& anchor : *anchors) {
    const Streams::Head& head = streams_.head(anchor.stream);
    age += head.top - anchor.seq - (head.pending ? 2 : 1);
  }
  counters_.sampled().fetch_add(batch, std::memory_order_relaxed);
  counters_.sampled_age().fetch_add(age, std::memory_order_relaxed);
}

void Replay::draw_kind(const Selector& selector, const View& view, const Philox& generator,
                       std::size_t batch, std::vector<Anchor>* anchors) {
  if (selector.kind == Selector::Kind::priority) {
    draw_by_priority(view, generator, batch, anchors);
  } else {
    draw_uniform(selector, view, generator, batch, anchors);
  }
}

void Replay::draw_fresh(const Selector& selector, const View& view, const Philox& generator,
                        std::size_t batch, std::vector<Anchor>* anchors) {
  const bool all = selector.kind == Selector::Kind::none;
  anchors->clear();
  const std::size_t taken = fresh_.take(view, streams_, batch, all, anchors);
  if (taken == batch) return;
  if (all) {
    throw std::invalid_argument("batch_size must be at most " + std::to_string(taken) +
                                ", the fresh windows of " + std::to_string(selector.fresh) +
                                " rows, got " + std::to_string(batch));
  }
  std::vector<Anchor> rest(batch - taken);
  draw_kind(selector, view, generator, rest.size(), &rest);
  anchors->insert(anchors->end(), rest.begin(), rest.end());
}

std::uint64_t Replay::floor_of_recent(std::uint32_t stream, std::uint64_t window) const {
  const Streams::Head& head = streams_.head(stream);
  if (window >= head.live) return head.floor;
  if (!streams_.tracked()) return head.top - window;
  std::uint64_t seq = head.top;
  for (std::uint64_t found = 0; found < window;) {
    found += streams_.is_live({--seq, stream}) ? 1 : 0;
  }
  return seq;
}

void Replay::draw_uniform(const Selector& selector, const View& view, const Philox& generator,
                          std::size_t batch, std::vector<Anchor>* anchors) {
  static thread_local std::vector<std::uint64_t> random;
  random.resize(batch);
  generator.fill(random.data(), batch);
  const std::size_t n_streams = streams_.count();
  const bool recent = selector.kind == Selector::Kind::recent;

  if (!streams_.tracked()) {
    const Streams::Head& head = streams_.head(0);
    const std::uint64_t floor = recent ? floor_of_recent(0, selector.window) : head.floor;
    const std::uint64_t count = head.top - floor;
    for (std::size_t i = 0; i < batch; ++i) {
      (*anchors)[i] = {floor + Philox::scale(random[i], count), 0};
    }
    return;
  }

  // ends[s] = slots of streams 0 ... s together; a point below ends.back() picks a slot of a
  // stream. Slots that hold no step, or one that the view refuses, are drawn again.
  static thread_local std::vector<std::uint64_t> floors;
  static thread_local std::vector<std::uint64_t> ends;
  floors.resize(n_streams);
  ends.resize(n_streams);
  const std::uint64_t window = (selector.window + n_streams - 1) / n_streams;
  std::uint64_t total = 0;
  for (std::uint32_t stream = 0; stream < n_streams; ++stream) {
    const Streams::Head& head = streams_.head(stream);
    floors[stream] = recent ? floor_of_recent(stream, window) : head.floor;
    total += head.top - floors[stream];
    ends[stream] = total;
  }
  const std::uint64_t* const end_of = ends.data();
  const std::uint64_t* const floor_of = floors.data();
  const auto locate = [=](std::uint64_t point) -> Anchor {
    const auto stream =
        static_cast<std::uint32_t>(std::upper_bound(end_of, end_of + n_streams, point) - end_of);
    return {floor_of[stream] + (point - (stream == 0 ? 0 : end_of[stream - 1])), stream};
  };
  // The marks of a million steps do not stay in the nearest caches: all are asked for before any is
  // read.
  for (std::size_t row = 0; row < batch; ++row) {
    (*anchors)[row] = locate(Philox::scale(random[row], total));
    streams_.prefetch_marks((*anchors)[row]);
  }
  std::vector<Anchor> candidates;  // every step that fits, listed only when draws keep missing
  for (std::size_t row = 0; row < batch; ++row) {
    Anchor anchor = (*anchors)[row];
    bool fits = streams_.is_live(anchor) && accepts(view, streams_, anchor);
    for (std::uint32_t attempt = 1; !fits && candidates.empty() && attempt < kMaxAttempts;
         ++attempt) {
      anchor = locate(generator.below(total, row, attempt));
      fits = streams_.is_live(anchor) && accepts(view, streams_, anchor);
    }
    if (!fits) {
      if (candidates.empty()) {
        for (const std::uint64_t id : ids(view)) {
          const Anchor candidate = streams_.anchor(id);
          if (candidate.seq >= floors[candidate.stream]) candidates.push_back(candidate);
        }
        if (candidates.empty()) throw_nothing_to_draw();
      }
      anchor = candidates[generator.below(candidates.size(), row, kMaxAttempts)];
    }
    (*anchors)[row] = anchor;
  }
}

void Replay::draw_by_priority(const View& view, const Philox& generator, std::size_t batch,
                              std::vector<Anchor>* anchors) {
  priorities_->prepare();
  const double total = priorities_->total();
  if (!(total > 0.0)) {
    throw std::invalid_argument("priorities must not all be zero: no step can be drawn");
  }
  static thread_local std::vector<std::uint64_t> random;
  static thread_local std::vector<double> targets;
  static thread_local std::vector<std::uint64_t> slots;
  random.resize(batch);
  targets.resize(batch);
  slots.resize(batch);
  generator.fill(random.data(), batch);
  const double share = total / static_cast<double>(batch);
  const bool stratified = options_.priorities->stratified;
  for (std::size_t i = 0; i < batch; ++i) {
    const double unit = static_cast<double>(random[i] >> 11) * 0x1p-53;
    targets[i] = stratified ? (static_cast<double>(i) + unit) * share : unit * total;
  }
  priorities_->find(targets.data(), batch, slots.data());
  std::vector<std::uint64_t> candidates;
  std::vector<double> ends;
  for (std::size_t row = 0; row < batch; ++row) {
    Anchor anchor = streams_.anchor_of_slot(slots[row]);
    bool fits = accepts(view, streams_, anchor);
    for (std::uint32_t attempt = 1; !fits && candidates.empty() && attempt < kMaxAttempts;
         ++attempt) {
      const double target = generator.unit(row, attempt) * total;
      std::uint64_t slot = 0;
      priorities_->find(&target, 1, &slot);
      anchor = streams_.anchor_of_slot(slot);
      fits = accepts(view, streams_, anchor);
    }
    if (!fits) {
      if (candidates.empty()) {
        double sum = 0.0;
        for (const std::uint64_t id : ids(view)) {
          const double leaf = priorities_->leaf(streams_.slot(streams_.anchor(id)));
          if (leaf <= 0.0) continue;
          candidates.push_back(id);
          ends.push_back(sum += leaf);
        }
        if (candidates.empty()) throw_nothing_to_draw();
      }
      const double target = generator.unit(row, kMaxAttempts) * ends.back();
      const auto found = std::upper_bound(ends.begin(), ends.end() - 1, target);
      anchor = streams_.anchor(candidates[static_cast<std::size_t>(found - ends.begin())]);
    }
    (*anchors)[row] = anchor;
  }
}

void Replay::weights(const std::vector<Anchor>& anchors, float* out) {
  static thread_local std::vector<std::uint64_t> slots;
  slots.resize(anchors.size());
  for (std::size_t i = 0; i < anchors.size(); ++i) slots[i] = streams_.slot(anchors[i]);
  priorities_->weights(slots.data(), slots.size(), beta(), options_.priorities->batch_norm, out);
}

}  // namespace sharpwave
