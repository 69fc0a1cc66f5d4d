#include "core/packing.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>

namespace sharpwave {
namespace {

// The room left in each of up to n bins as the leaves of a tree of maxima, so that the first bin
// with enough room is found from the root. Bins not opened yet are leaves with all their room.
class RoomTree {
 public:
  RoomTree(std::size_t n, std::int64_t room)
      : n_leaves_(std::bit_ceil(std::max<std::size_t>(n, 1))), room_(2 * n_leaves_, room) {}

  // Takes `length` from the first bin that has it and returns the bin.
  std::size_t place(std::int64_t length) {
    std::size_t node = 1;
    while (node < n_leaves_) node = 2 * node + (room_[2 * node] < length);
    const std::size_t bin = node - n_leaves_;
    room_[node] -= length;
    for (node /= 2; node > 0; node /= 2) {
      const std::int64_t most = std::max(room_[2 * node], room_[2 * node + 1]);
      if (room_[node] == most) break;
      room_[node] = most;
    }
    return bin;
  }

 private:
  std::size_t n_leaves_;
  std::vector<std::int64_t> room_;
};

void check_lengths(std::span<const std::int64_t> lengths, std::size_t max_len) {
  if (max_len == 0) throw std::invalid_argument("max_len must be at least 1, got 0");
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || static_cast<std::size_t>(lengths[i]) > max_len) {
      throw std::invalid_argument("lengths must be from 0 to max_len = " + std::to_string(max_len) +
                                  ", got " + std::to_string(lengths[i]) + " at index " +
                                  std::to_string(i));
    }
  }
}

// Indices by falling length, equal lengths in input order.
std::vector<std::int64_t> by_falling_length(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  return order;
}

}  // namespace

PackingPlan plan_packing(std::span<const std::int64_t> lengths, std::size_t max_len) {
  check_lengths(lengths, max_len);
  const std::size_t n = lengths.size();
  const std::vector<std::int64_t> order = by_falling_length(lengths);
  RoomTree tree(n, static_cast<std::int64_t>(max_len));
  std::vector<std::size_t> bins(n);
  PackingPlan plan;
  for (std::size_t k = 0; k < n; ++k) {
    bins[k] = tree.place(lengths[static_cast<std::size_t>(order[k])]);
    plan.n_bins = std::max(plan.n_bins, bins[k] + 1);
  }

  // Counting sort by bin: the order of placement inside a bin is the order of its offsets.
  std::vector<std::size_t> next(plan.n_bins + 1, 0);
  for (const std::size_t bin : bins) ++next[bin + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<std::int64_t> used(plan.n_bins, 0);
  plan.sequence.resize(n);
  plan.bin.resize(n);
  plan.offset.resize(n);
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t bin = bins[k];
    const std::size_t at = next[bin]++;
    plan.sequence[at] = order[k];
    plan.bin[at] = static_cast<std::int64_t>(bin);
    plan.offset[at] = used[bin];
    used[bin] += lengths[static_cast<std::size_t>(order[k])];
  }
  return plan;
}

}  // namespace sharpwave
