#include <set>
#include <thread>
#include <vector>

#include "core/fresh.hpp"
#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

Replay make_replay(std::size_t n_streams, std::size_t capacity) {
  ReplayOptions options;
  options.schema = step_schema();
  options.layout = Layout::stream;
  options.capacity = capacity;
  options.n_streams = n_streams;
  return Replay(std::move(options));
}

View windows(std::uint32_t length, bool arrivals) {
  View view;
  view.kind = View::Kind::sequence;
  view.length = length;
  view.cross = true;
  view.arrivals = arrivals;
  return view;
}

void push(Replay& replay, std::size_t steps, SplitMix& random, float* number) {
  for (std::size_t i = 0; i < steps; ++i) {
    for (std::uint32_t stream = 0; stream < replay.streams().count(); ++stream) {
      const Step step =
          make_step(*number, *number + 1.0F, 0.0F, random.below(6) == 0, random.below(6) == 0);
      replay.push(1, StepSources(&step).sources, &stream, nullptr);
      *number += 2.0F;
    }
  }
}

// Steps of drawn windows never come twice, whatever is pushed in between.
void no_step_comes_twice(bool arrivals) {
  Replay replay = make_replay(3, 300);
  SplitMix random(arrivals);
  float number = 0.0F;
  const View view = windows(4, arrivals);
  std::set<std::uint64_t> seen;
  for (int round = 0; round < 40; ++round) {
    push(replay, random.below(9), random, &number);
    std::vector<Anchor> anchors;
    const std::size_t n = random.below(5);
    CHECK(replay.fresh().take(view, replay.streams(), n, false, &anchors) == anchors.size());
    CHECK(anchors.size() <= n);
    if (anchors.empty()) continue;
    Slots slots;
    BatchOut out;
    out.fields.resize(kStepFields);
    std::vector<std::uint64_t> ids(anchors.size() * 4);
    if (!arrivals) ids.resize(anchors.size());
    out.indices = ids.data();
    replay.read(view, anchors, &slots, out);
    for (std::size_t row = 0; row < slots.steps.size(); ++row) {
      const std::uint32_t stream = anchors[row / 4].stream;
      if (arrivals && slots.is_end[row] != 0) continue;
      CHECK(seen.insert(replay.streams().id({slots.steps[row], stream})).second);
    }
  }
  CHECK(seen.size() > 50);
}

void all_or_none_are_taken() {
  Replay replay = make_replay(1, 100);
  SplitMix random(3);
  float number = 0.0F;
  push(replay, 9, random, &number);
  const View view = windows(4, false);
  std::vector<Anchor> anchors;
  CHECK(replay.fresh().take(view, replay.streams(), 3, true, &anchors) == 2);
  CHECK(anchors.empty());
  CHECK(replay.fresh().take(view, replay.streams(), 2, true, &anchors) == 2);
  CHECK(anchors.size() == 2);
  const std::vector<FreshQueues::Queue> saved = replay.fresh().queues();
  CHECK(saved.size() == 1 && saved[0].length == 4 && saved[0].places[0].taken == 2);
  replay.fresh().set_queues({});
  anchors.clear();
  CHECK(replay.fresh().take(view, replay.streams(), 9, false, &anchors) == 2);
}

// Threads that take windows at once get different ones.
void threads_share_a_queue() {
  Replay replay = make_replay(2, 4000);
  SplitMix random(5);
  float number = 0.0F;
  push(replay, 900, random, &number);
  const View view = windows(3, true);
  std::vector<std::vector<Anchor>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&] {
      while (replay.fresh().take(view, replay.streams(), 5, false, &mine) > 0) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::uint64_t> seen;
  for (const auto& mine : taken) {
    for (const Anchor& anchor : mine) CHECK(seen.insert(replay.streams().id(anchor)).second);
  }
  CHECK(seen.size() > 600);
}

}  // namespace

int main() {
  no_step_comes_twice(false);
  no_step_comes_twice(true);
  all_or_none_are_taken();
  threads_share_a_queue();
  return 0;
}
