#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

ReplayOptions options(std::size_t capacity, std::size_t n_streams = 0) {
  ReplayOptions made;
  made.schema = step_schema();
  made.layout = n_streams == 0 ? Layout::transition : Layout::stream;
  made.capacity = capacity;
  made.n_streams = n_streams;
  made.seed = 3;
  return made;
}

ReplayOptions prioritized(std::size_t capacity, std::size_t n_streams = 0) {
  ReplayOptions made = options(capacity, n_streams);
  made.priorities = PriorityOptions{};
  made.priorities->alpha = 1.0;
  made.priorities->beta = 1.0;
  return made;
}

void push(Replay* replay, float number, std::uint32_t stream = 0, const float* priority = nullptr) {
  const Step step = make_step(number, number + 1.0F, number);
  replay->push(1, StepSources(&step).sources, &stream, priority);
}

std::vector<Anchor> draw(Replay* replay, const Selector& selector, std::size_t batch,
                         std::optional<std::uint64_t> seed = 1) {
  std::vector<Anchor> anchors;
  replay->draw(selector, View{}, replay->generator(seed), batch, &anchors);
  return anchors;
}

void refuses_options_that_make_no_sense() {
  CHECK_THROWS(std::invalid_argument, Replay(options(0)));
  CHECK_THROWS(std::invalid_argument, Replay(options(3, 4)));
  CHECK_THROWS(std::bad_alloc, Replay(options(std::size_t{1} << 61)));
  CHECK_THROWS(std::bad_alloc, Replay(options(10'000'000'000'000)));
  ReplayOptions stacked = options(8);
  stacked.schema.fields[kObs].stack = 2;
  stacked.schema.fields[kNextObs].stack = 2;
  CHECK_THROWS(std::invalid_argument, Replay(stacked));
  ReplayOptions lonely = options(8, 1);
  lonely.schema.fields.pop_back();
  CHECK_THROWS(std::invalid_argument, Replay(lonely));
}

void keeps_the_newest_steps() {
  for (const std::size_t n_streams : {0, 1}) {
    Replay replay(options(10, n_streams));
    for (int i = 0; i < 37; ++i) {
      push(&replay, static_cast<float>(i));
      CHECK(replay.streams().live() == static_cast<std::uint64_t>(i < 10 ? i + 1 : 10));
      CHECK(replay.is_full() == (i >= 9));
    }
    const auto ids = replay.ids(View{});
    CHECK(ids.size() == 10 && ids.front() == 27 && ids.back() == 36);
  }
}

void a_seed_fixes_the_draw_and_no_seed_never_repeats() {
  Replay replay(options(1000));
  for (int i = 0; i < 1000; ++i) push(&replay, static_cast<float>(i));
  const auto same = [](const std::vector<Anchor>& a, const std::vector<Anchor>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].seq != b[i].seq) return false;
    }
    return true;
  };
  const Selector uniform;
  CHECK(same(draw(&replay, uniform, 64, 5), draw(&replay, uniform, 64, 5)));
  CHECK(!same(draw(&replay, uniform, 64, 5), draw(&replay, uniform, 64, 6)));
  CHECK(!same(draw(&replay, uniform, 64, std::nullopt), draw(&replay, uniform, 64, std::nullopt)));
  // A smaller batch is the beginning of a larger one.
  const auto small = draw(&replay, uniform, 7, 5);
  CHECK(same(small, draw(&replay, uniform, 64, 5)));
}

void recent_draws_only_the_newest() {
  for (const std::size_t n_streams : {0, 2}) {
    Replay replay(options(100, n_streams));
    for (int i = 0; i < 150; ++i) {
      push(&replay, static_cast<float>(i), n_streams == 0 ? 0 : static_cast<std::uint32_t>(i % 2));
    }
    Selector recent{Selector::Kind::recent, 10};
    std::set<std::uint64_t> seen;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (const Anchor& anchor : draw(&replay, recent, 10, seed)) {
        seen.insert(replay.streams().id(anchor));
      }
    }
    CHECK(seen.size() == 10);
    const auto ids = replay.ids(View{});
    for (const std::uint64_t id : seen)
      CHECK(replay.streams().is_live(replay.streams().anchor(id)));
    if (n_streams == 0) CHECK(*seen.begin() == ids[ids.size() - 10]);
  }
}

void nothing_can_be_drawn_from_nothing() {
  Replay replay(prioritized(4));
  CHECK_THROWS(std::invalid_argument, draw(&replay, {Selector::Kind::uniform, 0}, 1));
  CHECK(draw(&replay, {Selector::Kind::uniform, 0}, 0).empty());
  const float zero = 0.0F;
  push(&replay, 1.0F, 0, &zero);
  CHECK_THROWS(std::invalid_argument, draw(&replay, {Selector::Kind::priority, 0}, 1));
  CHECK(draw(&replay, {Selector::Kind::uniform, 0}, 1).size() == 1);
}

void ids_never_return_after_clear() {
  Replay replay(options(8, 1));
  for (int i = 0; i < 5; ++i) push(&replay, static_cast<float>(i));
  const auto before = replay.ids(View{});
  replay.clear();
  CHECK(replay.streams().live() == 0);
  for (int i = 0; i < 30; ++i) push(&replay, static_cast<float>(i));
  for (const std::uint64_t id : replay.ids(View{})) CHECK(id > before.back());
  std::vector<Anchor> anchors;
  CHECK_THROWS(std::out_of_range, replay.find(before.data(), 1, &anchors));
}

void draws_follow_priorities() {
  for (const std::size_t n_streams : {0, 1}) {
    Replay replay(prioritized(16, n_streams));
    for (int i = 0; i < 20; ++i) push(&replay, static_cast<float>(i));
    const auto ids = replay.ids(View{});
    std::vector<float> priorities(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) priorities[i] = static_cast<float>(i);
    CHECK(replay.update_priorities(ids.data(), priorities.data(), ids.size()) == 0);
    std::vector<double> counts(ids.size());
    std::vector<float> weights(64);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const auto anchors = draw(&replay, {Selector::Kind::priority, 0}, 64, seed);
      replay.weights(anchors, weights.data());
      for (std::size_t i = 0; i < anchors.size(); ++i) {
        const std::uint64_t at = replay.streams().id(anchors[i]) - ids.front();
        counts[at] += 1.0;
        CHECK(std::fabs(weights[i] - 1.0 / static_cast<double>(at)) < 1e-5);
      }
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double expected = 300.0 * 64.0 * static_cast<double>(i) / 120.0;
      CHECK(std::fabs(counts[i] - expected) <= 5.0 * std::sqrt(expected + 1.0));
    }
  }
}

void updates_of_overwritten_steps_are_dropped_and_counted() {
  Replay replay(prioritized(4, 1));
  for (int i = 0; i < 4; ++i) push(&replay, static_cast<float>(i));
  const auto old = replay.ids(View{});
  for (int i = 4; i < 7; ++i) push(&replay, static_cast<float>(i));
  const std::vector<float> zeros(old.size(), 0.0F);
  CHECK(replay.update_priorities(old.data(), zeros.data(), old.size()) == 3);
  CHECK(replay.counters().stale_updates() == 3);
  const auto now = replay.ids(View{});
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto slot = replay.streams().slot(replay.streams().anchor(now[i]));
    CHECK(replay.priorities()->leaf(slot) == (now[i] == old[3] ? 0.0F : 1.0F));
  }
}

void a_failed_update_changes_nothing() {
  Replay replay(prioritized(4));
  push(&replay, 0.0F);
  push(&replay, 1.0F);
  const std::uint64_t ids[] = {0, 1, 99};
  const float priorities[] = {50.0F, 60.0F, 70.0F};
  CHECK_THROWS(std::out_of_range, replay.update_priorities(ids, priorities, 3));
  CHECK(replay.priorities()->leaf(0) == 1.0F && replay.priorities()->leaf(1) == 1.0F);
  CHECK(replay.priorities()->max_priority() == 1.0 && replay.counters().stale_updates() == 0);
}

}  // namespace

int main() {
  refuses_options_that_make_no_sense();
  keeps_the_newest_steps();
  a_seed_fixes_the_draw_and_no_seed_never_repeats();
  recent_draws_only_the_newest();
  nothing_can_be_drawn_from_nothing();
  ids_never_return_after_clear();
  draws_follow_priorities();
  updates_of_overwritten_steps_are_dropped_and_counted();
  a_failed_update_changes_nothing();
}
