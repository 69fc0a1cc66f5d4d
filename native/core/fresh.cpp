#include "core/fresh.hpp"

#include <algorithm>

namespace sharpwave {
namespace {

// The first step from `seq` on whose window is complete, or kNoSlot.
std::uint64_t next_complete(const View& view, const Streams& streams, std::uint32_t stream,
                            std::uint64_t seq) {
  seq = streams.next_step({std::max(seq, streams.head(stream).floor), stream});
  while (seq != kNoSlot && !accepts(view, streams, {seq, stream})) {
    const Anchor step{seq, stream};
    const bool lacks_beginning =
        view.arrivals && !streams.is_first(step) && !streams.is_live({seq - 1, stream});
    if (lacks_beginning) {  // it was overwritten
      seq = streams.next_step({seq + 1, stream});
      continue;
    }
    if (view.cross) return kNoSlot;  // more is to come
    const Anchor last{streams.last_of(step, streams.slots_per_stream()), stream};
    if (!streams.is_last(last)) return kNoSlot;
    seq = streams.next_step({last.seq + 1, stream});  // no window fits into the rest of the episode
  }
  return seq;
}

}  // namespace

std::size_t FreshQueues::take(const View& view, const Streams& streams, std::size_t n, bool all,
                              std::vector<Anchor>* anchors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto length = static_cast<std::uint32_t>(view.rows());
  auto queue = std::find_if(queues_.begin(), queues_.end(),
                            [=](const Queue& one) { return one.length == length; });
  if (queue == queues_.end()) {
    queues_.push_back({length, std::vector<Place>(streams.count())});
    queue = queues_.end() - 1;
  }
  std::vector<Place> places = queue->places;
  std::vector<std::uint64_t> found(places.size());  // the next window of every stream
  for (std::uint32_t stream = 0; stream < places.size(); ++stream) {
    found[stream] = next_complete(view, streams, stream, places[stream].next);
  }
  const std::size_t before = anchors->size();
  while (anchors->size() < before + n) {
    std::uint32_t turn = 0;
    bool any = false;
    for (std::uint32_t stream = 0; stream < places.size(); ++stream) {
      if (found[stream] == kNoSlot) continue;
      if (!any || places[stream].taken < places[turn].taken) turn = stream;
      any = true;
    }
    if (!any) break;
    const Anchor anchor{found[turn], turn};
    anchors->push_back(anchor);
    ++places[turn].taken;
    places[turn].next = last_step(view, streams, anchor) + 1;
    found[turn] = next_complete(view, streams, turn, places[turn].next);
  }
  const std::size_t taken = anchors->size() - before;
  if (all && taken < n) {
    anchors->resize(before);
  } else {
    queue->places = std::move(places);
  }
  return taken;
}

std::vector<FreshQueues::Queue> FreshQueues::queues() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queues_;
}

void FreshQueues::set_queues(std::vector<Queue> queues) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queues_ = std::move(queues);
}

}  // namespace sharpwave
