#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "core/packing.hpp"

namespace {

using Lengths = std::vector<std::int64_t>;

// Per bin the sequences in the order of placement, by two loops.
std::vector<Lengths> first_fit_decreasing(const Lengths& lengths, std::int64_t max_len) {
  Lengths order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  std::vector<Lengths> bins;
  Lengths room;
  for (const std::int64_t index : order) {
    const std::int64_t length = lengths[static_cast<std::size_t>(index)];
    std::size_t bin = 0;
    while (bin < room.size() && room[bin] < length) ++bin;
    if (bin == room.size()) {
      bins.emplace_back();
      room.push_back(max_len);
    }
    bins[bin].push_back(index);
    room[bin] -= length;
  }
  return bins;
}

void check_equals_loop(const Lengths& lengths, std::int64_t max_len) {
  const sharpwave::PackingPlan plan =
      sharpwave::plan_packing(lengths, static_cast<std::size_t>(max_len));
  const std::vector<Lengths> want = first_fit_decreasing(lengths, max_len);
  CHECK(plan.n_bins == want.size());
  std::size_t k = 0;
  for (std::size_t bin = 0; bin < want.size(); ++bin) {
    std::int64_t offset = 0;
    for (const std::int64_t index : want[bin]) {
      CHECK(plan.sequence[k] == index);
      CHECK(plan.bin[k] == static_cast<std::int64_t>(bin));
      CHECK(plan.offset[k] == offset);
      offset += lengths[static_cast<std::size_t>(index)];
      ++k;
    }
    CHECK(offset <= max_len);
  }
  CHECK(k == lengths.size());
}

}  // namespace

int main() {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t max_len = 1 + random() % 60;
    Lengths lengths(random() % 90);
    for (auto& length : lengths) length = random() % static_cast<unsigned>(max_len + 1);
    check_equals_loop(lengths, max_len);
  }
  check_equals_loop({}, 3);
  check_equals_loop({0, 0}, 3);
  CHECK_THROWS(std::invalid_argument, sharpwave::plan_packing(Lengths{4}, 3));
  CHECK_THROWS(std::invalid_argument, sharpwave::plan_packing(Lengths{-1}, 3));
  CHECK_THROWS(std::invalid_argument, sharpwave::plan_packing(Lengths{}, 0));
  return 0;
}
