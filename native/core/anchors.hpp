// The items of a dataset of episodes: anchors, numbered episode after episode.
//
// Episode e has counts[e] anchors, at its steps 0, stride, 2 stride and so on; its step t is row
// starts[e] + t. Number n belongs to the episode whose anchors reach past n first. A filter may
// leave only some of the numbers, which are then counted anew. Finding one is a look into a table
// of buckets and, where episodes are of very different lengths, a short binary search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sharpwave {

class Anchors {
 public:
  struct Place {
    std::int64_t episode;
    std::int64_t step;
    std::int64_t row;
  };

  // Arrays for the places of several numbers.
  struct Places {
    std::int64_t* episodes;
    std::int64_t* steps;
    std::int64_t* rows;

    void put(std::size_t i, const Place& place) const {
      episodes[i] = place.episode;
      steps[i] = place.step;
      rows[i] = place.row;
    }
  };

  // Throws std::invalid_argument for a negative count or a stride below 1, and unless there is a
  // start for every count.
  Anchors(std::vector<std::int64_t> counts, std::vector<std::int64_t> starts, std::int64_t stride);

  // Leaves only these numbers, which must ascend: number i is chosen[i] from now on. Throws
  // std::invalid_argument when they do not, or lie outside.
  void choose(std::vector<std::int64_t> chosen);

  std::int64_t size() const { return size_; }

  // The place of a number in [0, size()).
  Place find(std::int64_t number) const;

  // The places of numbers, which must lie in [0, size()): std::out_of_range otherwise.
  void find(const std::int64_t* numbers, std::size_t n, const Places& out) const;

  // The places of numbers begin to end, in the order of a permutation with this key or, without
  // one, as they are. Throws std::out_of_range unless 0 <= begin <= end <= size().
  void span(std::int64_t begin, std::int64_t end, const std::uint64_t* key,
            const Places& out) const;

 private:
  std::vector<std::int64_t> ends_;  // of each episode: the first number after its anchors
  std::vector<std::int64_t> starts_;
  std::int64_t stride_;
  std::vector<std::int64_t> first_;  // of each bucket: the episode of its first number; one more
  std::vector<std::int64_t> chosen_;
  bool all_ = true;
  std::int64_t size_ = 0;
  int shift_ = 0;  // numbers of a bucket: 2**shift_
};

// One window of up to `width` steps at a random place of each of n episodes: a function of the key
// and the episode alone, and every place where it fits is equally likely. `first_rows` are the rows
// of their first steps and `lengths` all their steps; out of it come the step at which the window
// begins, its row, and its length. Throws std::invalid_argument for an episode without steps.
struct Windows {
  std::int64_t* steps;
  std::int64_t* rows;
  std::int64_t* lengths;
};
void draw_windows(const std::int64_t* episodes, const std::int64_t* first_rows,
                  const std::int64_t* lengths, std::size_t n, std::int64_t width, std::uint64_t key,
                  const Windows& out);

}  // namespace sharpwave
