#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "core/anchors.hpp"
#include "splitmix.hpp"

namespace {

using sharpwave::Anchors;
using Numbers = std::vector<std::int64_t>;

bool same(const Anchors::Place& a, const Anchors::Place& b) {
  return a.episode == b.episode && a.step == b.step && a.row == b.row;
}

// Starts that leave a gap before every episode.
Numbers starts_of(const Numbers& counts) {
  Numbers starts;
  std::int64_t next = 0;
  for (const std::int64_t count : counts) {
    starts.push_back(next += 7);
    next += 5 * count;
  }
  return starts;
}

Anchors anchors_of(const Numbers& counts, std::int64_t stride = 1) {
  return Anchors(counts, starts_of(counts), stride);
}

// Every anchor, one after the other.
std::vector<Anchors::Place> listed(const Numbers& counts, std::int64_t stride = 1) {
  std::vector<Anchors::Place> places;
  const Numbers starts = starts_of(counts);
  for (std::size_t e = 0; e < counts.size(); ++e) {
    for (std::int64_t i = 0; i < counts[e]; ++i) {
      places.push_back({static_cast<std::int64_t>(e), i * stride, starts[e] + i * stride});
    }
  }
  return places;
}

void check_equals_list(const Numbers& counts, std::int64_t stride = 1) {
  const auto want = listed(counts, stride);
  const Anchors anchors = anchors_of(counts, stride);
  CHECK(anchors.size() == static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(same(anchors.find(static_cast<std::int64_t>(i)), want[i]));
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
    check_equals_list(counts, trial % 5 + 1);
  }
  Numbers uneven(1000, 1);
  uneven[500] = 100'000;
  check_equals_list(uneven);
}

void chosen_numbers_are_counted_anew() {
  const Numbers counts = {3, 0, 4, 2};
  const Numbers chosen = {0, 2, 3, 8};
  const auto all = listed(counts);
  Anchors anchors = anchors_of(counts);
  anchors.choose(chosen);
  CHECK(anchors.size() == 4);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto want = all[static_cast<std::size_t>(chosen[i])];
    CHECK(same(anchors.find(static_cast<std::int64_t>(i)), want));
  }
  for (const Numbers& bad : {Numbers{1, 1}, Numbers{2, 1}, Numbers{-1}, Numbers{9}}) {
    Anchors other = anchors_of(counts);
    CHECK_THROWS(std::invalid_argument, other.choose(bad));
    CHECK(other.size() == 9);
  }
}

void spans_cover_every_anchor_once_in_the_order_of_their_key() {
  const Numbers counts = {7, 1, 0, 30, 12};
  const Anchors anchors = anchors_of(counts);
  const auto want = listed(counts);
  Numbers episodes(want.size()), steps(want.size()), rows(want.size());
  const Anchors::Places out{episodes.data(), steps.data(), rows.data()};
  anchors.span(0, anchors.size(), nullptr, out);
  for (std::size_t i = 0; i < want.size(); ++i) {
    CHECK(same({episodes[i], steps[i], rows[i]}, want[i]));
  }
  const std::uint64_t key = 11;
  std::set<std::int64_t> seen;
  for (std::int64_t begin = 0; begin < anchors.size(); begin += 8) {
    const std::int64_t end = std::min(begin + 8, anchors.size());
    anchors.span(begin, end, &key, out);
    for (std::int64_t i = 0; i < end - begin; ++i) seen.insert(rows[static_cast<std::size_t>(i)]);
  }
  CHECK(seen.size() == want.size());
}

void bad_numbers_throw() {
  const Anchors anchors({3, 2}, {0, 3}, 1);
  std::int64_t episode = 0, step = 0, row = 0;
  const Anchors::Places out{&episode, &step, &row};
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{5}}) {
    CHECK_THROWS(std::out_of_range, (anchors.find(&bad, 1, out), 0));
  }
  CHECK_THROWS(std::out_of_range, (anchors.span(-1, 0, nullptr, out), 0));
  CHECK_THROWS(std::out_of_range, (anchors.span(2, 1, nullptr, out), 0));
  CHECK_THROWS(std::out_of_range, (anchors.span(0, 6, nullptr, out), 0));
  CHECK_THROWS(std::invalid_argument, Anchors({1, -1}, {0, 1}, 1));
  CHECK_THROWS(std::invalid_argument, Anchors({1, 1}, {0}, 1));
  CHECK_THROWS(std::invalid_argument, Anchors({1}, {0}, 0));
  CHECK_THROWS(std::invalid_argument,
               Anchors({std::numeric_limits<std::int64_t>::max(), 1}, {0, 0}, 1));
}

void random_windows_lie_anywhere_in_their_episodes() {
  constexpr std::size_t n = 4000;
  constexpr std::int64_t width = 4;
  Numbers episodes(n), first(n), all(n), steps(n), rows(n), lengths(n);
  std::iota(episodes.begin(), episodes.end(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    first[i] = static_cast<std::int64_t>(100 * i);
    all[i] = static_cast<std::int64_t>(1 + i % 7);
  }
  const auto draw = [&](std::size_t from, std::size_t count, const sharpwave::Windows& out) {
    sharpwave::draw_windows(episodes.data() + from, first.data() + from, all.data() + from, count,
                            width, 9, out);
  };
  draw(0, n, {steps.data(), rows.data(), lengths.data()});
  std::vector<std::set<std::int64_t>> seen(8);
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(lengths[i] == std::min(all[i], width));
    CHECK(steps[i] >= 0 && steps[i] + lengths[i] <= all[i]);
    CHECK(rows[i] == first[i] + steps[i]);
    seen[static_cast<std::size_t>(all[i])].insert(steps[i]);
  }
  for (std::size_t of = 1; of < seen.size(); ++of) CHECK(seen[of].size() == (of <= 4 ? 1 : of - 3));
  // A draw depends on its episode, not on its neighbors.
  Numbers again(n), rest(n), others(n);
  draw(100, 50, {again.data(), rest.data(), others.data()});
  CHECK(std::equal(again.begin(), again.begin() + 50, steps.begin() + 100));
  all[3] = 0;
  CHECK_THROWS(std::invalid_argument, (draw(0, n, {steps.data(), rows.data(), lengths.data()}), 0));
}

}  // namespace

int main() {
  numbers_go_through_episodes_of_all_lengths();
  chosen_numbers_are_counted_anew();
  spans_cover_every_anchor_once_in_the_order_of_their_key();
  bad_numbers_throw();
  random_windows_lie_anywhere_in_their_episodes();
}
