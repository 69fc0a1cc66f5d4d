// Which windows of a length have not been drawn yet: every stream is cut into windows one after
// another, each of which is handed out once.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/streams.hpp"
#include "core/view.hpp"

namespace sharpwave {

class FreshQueues {
 public:
  // Where a stream stands: the seq before which all windows were handed out, and how many were.
  struct Place {
    std::uint64_t next = 0;
    std::uint64_t taken = 0;
  };
  struct Queue {
    std::uint32_t length = 0;
    std::vector<Place> places;  // by stream
  };

  // Appends the first steps of the oldest complete windows, at most n of them, and takes them off
  // the queue of their length; with `all` none of them when there are fewer. The streams take
  // turns: next is the one of which the fewest were handed out. Windows that were overwritten first
  // are passed over. The view has rows of this length, without padding, burn-in and stride.
  std::size_t take(const View& view, const Streams& streams, std::size_t n, bool all,
                   std::vector<Anchor>* anchors);

  // To save and restore.
  std::vector<Queue> queues();
  void set_queues(std::vector<Queue> queues);

 private:
  std::mutex mutex_;
  std::vector<Queue> queues_;
};

}  // namespace sharpwave
