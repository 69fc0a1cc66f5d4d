#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/anchors.hpp"
#include "splitmix.hpp"

namespace {

using sharpwave::Anchors;
using Numbers = std::vector<std::int64_t>;

// (episode, offset) of every anchor, one after the other.
std::vector<std::pair<std::int64_t, std::int64_t>> listed(const Numbers& counts) {
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  for (std::size_t e = 0; e < counts.size(); ++e) {
    for (std::int64_t i = 0; i < counts[e]; ++i) places.emplace_back(e, i);
  }
  return places;
}

void check_equals_list(const Numbers& counts) {
  const auto want = listed(counts);
  const Anchors anchors(counts);
  CHECK(anchors.size() == static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto [episode, offset] = anchors.find(static_cast<std::int64_t>(i));
    CHECK(episode == want[i].first && offset == want[i].second);
  }
}

void numbers_go_through_episodes_of_all_lengths() {
  check_equals_list({});
  check_equals_list({0});
  check_equals_list({0, 0, 1, 0});
  check_equals_list({5});
  SplitMix random(3);
  for (int trial = 0; trial < 200; ++trial) {
    Numbers counts(random.below(30));
    for (std::int64_t& count : counts) {
      const std::uint64_t kind = random.below(4);
      count = static_cast<std::int64_t>(kind == 0 ? 0 : random.below(kind == 1 ? 3 : 400));
    }
    check_equals_list(counts);
  }
  Numbers uneven(1000, 1);
  uneven[500] = 100'000;
  check_equals_list(uneven);
}

void chosen_numbers_are_counted_anew() {
  const Numbers counts = {3, 0, 4, 2};
  const Numbers chosen = {0, 2, 3, 8};
  const auto all = listed(counts);
  Anchors anchors(counts);
  anchors.choose(chosen);
  CHECK(anchors.size() == 4);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto [episode, offset] = anchors.find(static_cast<std::int64_t>(i));
    const auto want = all[static_cast<std::size_t>(chosen[i])];
    CHECK(episode == want.first && offset == want.second);
  }
  for (const Numbers& bad : {Numbers{1, 1}, Numbers{2, 1}, Numbers{-1}, Numbers{9}}) {
    Anchors other(counts);
    CHECK_THROWS(std::invalid_argument, other.choose(bad));
    CHECK(other.size() == 9);
  }
}

void spans_cover_every_anchor_once_in_the_order_of_their_key() {
  const Numbers counts = {7, 1, 0, 30, 12};
  const Anchors anchors(counts);
  const auto want = listed(counts);
  Numbers episodes(want.size()), offsets(want.size());
  anchors.span(0, anchors.size(), nullptr, episodes.data(), offsets.data());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(episodes[i] == want[i].first && offsets[i] == want[i].second);
  }
  const std::uint64_t key = 11;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::int64_t begin = 0; begin < anchors.size(); begin += 8) {
    const std::int64_t end = std::min(begin + 8, anchors.size());
    anchors.span(begin, end, &key, episodes.data(), offsets.data());
    for (std::int64_t i = 0; i < end - begin; ++i) {
      seen.emplace(episodes[static_cast<std::size_t>(i)], offsets[static_cast<std::size_t>(i)]);
    }
  }
  CHECK(seen.size() == want.size());
}

void bad_numbers_throw() {
  const Anchors anchors({3, 2});
  std::int64_t episode = 0, offset = 0;
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{5}}) {
    CHECK_THROWS(std::out_of_range, (anchors.find(&bad, 1, &episode, &offset), 0));
  }
  CHECK_THROWS(std::out_of_range, (anchors.span(-1, 0, nullptr, &episode, &offset), 0));
  CHECK_THROWS(std::out_of_range, (anchors.span(2, 1, nullptr, &episode, &offset), 0));
  CHECK_THROWS(std::out_of_range, (anchors.span(0, 6, nullptr, &episode, &offset), 0));
  CHECK_THROWS(std::invalid_argument, Anchors({1, -1}));
  CHECK_THROWS(std::invalid_argument, Anchors({std::numeric_limits<std::int64_t>::max(), 1}));
}

void draws_stay_below_their_limits_and_reach_them() {
  constexpr std::size_t n = 4000;
  Numbers limits(n), rows(n), out(n), again(n);
  std::iota(rows.begin(), rows.end(), 0);
  for (std::size_t i = 0; i < n; ++i) limits[i] = static_cast<std::int64_t>(1 + i % 5);
  sharpwave::draw_below(limits.data(), rows.data(), n, 9, out.data());
  std::vector<std::set<std::int64_t>> seen(6);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(out[i] >= 0 && out[i] < limits[i]);
    seen[static_cast<std::size_t>(limits[i])].insert(out[i]);
  }
  for (std::size_t limit = 1; limit < seen.size(); ++limit) CHECK(seen[limit].size() == limit);
  // A draw depends on its row, not on its neighbours.
  sharpwave::draw_below(limits.data() + 100, rows.data() + 100, 50, 9, again.data());
  CHECK(std::equal(again.begin(), again.begin() + 50, out.begin() + 100));
  limits[3] = 0;
  CHECK_THROWS(std::invalid_argument,
               (sharpwave::draw_below(limits.data(), rows.data(), n, 9, out.data()), 0));
}

}  // namespace

int main() {
  numbers_go_through_episodes_of_all_lengths();
  chosen_numbers_are_counted_anew();
  spans_cover_every_anchor_once_in_the_order_of_their_key();
  bad_numbers_throw();
  draws_stay_below_their_limits_and_reach_them();
}
