#include <algorithm>
#include <vector>

#include "core/streams.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"

namespace {

using sharpwave::Anchor;
using sharpwave::Streams;

struct Step {
  std::uint64_t seq;
  bool first;
  bool last;
};

// Rings of steps as plain lists, oldest first.
struct Model {
  std::vector<std::vector<Step>> steps;

  std::uint64_t last_of(std::uint32_t stream, std::size_t i, std::uint64_t limit) const {
    const auto& list = steps[stream];
    std::uint64_t taken = 1;
    while (!list[i].last && i + 1 < list.size() && taken < limit) {
      ++i;
      ++taken;
    }
    return list[i].seq;
  }
  std::uint64_t first_of(std::uint32_t stream, std::size_t i) const {
    while (!steps[stream][i].first && i > 0) --i;
    return steps[stream][i].seq;
  }
};

void compare(const Streams& streams, const Model& model, SplitMix& random) {
  std::uint64_t live = 0;
  for (std::uint32_t stream = 0; stream < streams.count(); ++stream) {
    const auto& list = model.steps[stream];
    const Streams::Head& head = streams.head(stream);
    live += list.size();
    CHECK(head.live == list.size() && head.top - head.floor == list.size());
    CHECK(!streams.is_live({head.top, stream}));
    if (head.floor > 0) CHECK(!streams.is_live({head.floor - 1, stream}));
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Anchor anchor{list[i].seq, stream};
      CHECK(streams.is_live(anchor));
      CHECK(streams.is_first(anchor) == list[i].first);
      CHECK(streams.is_last(anchor) == list[i].last);
      CHECK(streams.slot(anchor) == streams.slot(stream, anchor.seq));
      const Anchor found = streams.anchor_of_slot(streams.slot(anchor));
      CHECK(found.seq == anchor.seq && found.stream == stream);
      const Anchor again = streams.anchor(streams.id(anchor));
      CHECK(again.seq == anchor.seq && again.stream == stream);
      const std::uint64_t limit = 1 + random.below(2 * streams.slots_per_stream());
      CHECK(streams.last_of(anchor, limit) == model.last_of(stream, i, limit));
      CHECK(streams.first_of(anchor) == model.first_of(stream, i));
    }
  }
  CHECK(streams.live() == live);
}

void follow_a_model(std::size_t n_streams, std::size_t kept, std::size_t spare,
                    std::uint64_t mean_length) {
  const std::size_t slots = kept;
  Streams streams(n_streams, kept + spare, 0, true, kept);
  Model model{std::vector<std::vector<Step>>(n_streams)};
  std::vector<bool> open(n_streams);
  SplitMix random(slots * 100 + mean_length);
  const std::size_t n_steps = 4 * slots * n_streams + 50;
  for (std::size_t step = 0; step < n_steps; ++step) {
    const auto stream = static_cast<std::uint32_t>(random.below(n_streams));
    const Anchor anchor{streams.head(stream).top, stream};
    auto& list = model.steps[stream];
    const bool full = list.size() == slots;
    std::vector<std::size_t> evicted;
    streams.advance(stream, 1, [&](std::size_t slot) { evicted.push_back(slot); });
    CHECK(evicted.size() == (full ? 1U : 0U));
    if (full) {
      CHECK(evicted[0] == streams.slot(stream, list.front().seq));
      list.erase(list.begin());
    }
    const bool last = random.below(mean_length) == 0;
    streams.add_step(anchor, !open[stream], last, false);
    list.push_back({anchor.seq, !open[stream], last});
    open[stream] = !last;
    if (step % 37 == 0) compare(streams, model, random);
    if (random.below(3 * slots * n_streams + 60) == 0) {
      streams.clear();
      for (auto& one : model.steps) one.clear();
      open.assign(n_streams, false);
    }
  }
  compare(streams, model, random);
}

void restored_marks_count_the_same() {
  Streams original(2, 70, 0, true);
  for (std::uint32_t i = 0; i < 300; ++i) {
    const std::uint32_t stream = i % 3 == 0 ? 1 : 0;
    const Anchor anchor{original.head(stream).top, stream};
    original.advance(stream, 1, [](std::size_t) {});
    original.add_step(anchor, i % 5 == 0, i % 5 == 4, false);
  }
  Streams copy(2, 70, 0, true);
  for (std::size_t i = 0; i < copy.bitmaps().size(); ++i) {
    *copy.bitmaps()[i] = *original.bitmaps()[i];
  }
  for (std::size_t i = 0; i < 2; ++i) copy.head(i) = original.head(i);
  copy.bitmaps()[0]->set(3);  // inside or not, it must not unbalance the count
  copy.recount();
  CHECK(copy.live() == original.live());
  CHECK(copy.head(1).floor_position == original.head(1).floor_position);
}

void marks_can_be_read_and_set_as_bytes() {
  Streams original(2, 40, 2, true, 30);
  Streams copy(2, 40, 2, true, 30);
  for (std::uint32_t i = 0; i < 149; ++i) {
    const std::uint32_t stream = i % 2;
    const Anchor anchor{original.head(stream).top, stream};
    original.advance(stream, 1, [](std::size_t) {});
    copy.advance(stream, 1, [](std::size_t) {});
    if (i % 7 == 0) continue;  // an observation that is no step
    original.add_step(anchor, i % 5 == 0, i % 5 == 4, i % 11 == 0);
    copy.set_marks(anchor, original.marks(original.slot(anchor)));
    copy.set_marks(anchor, original.marks(original.slot(anchor)));  // counts once
  }
  CHECK(copy.live() == original.live());
  for (std::size_t slot = 0; slot < 80; ++slot) CHECK(copy.marks(slot) == original.marks(slot));
  const Anchor newest{original.head(0).top - 1, 0};
  CHECK(!original.is_last(newest));
  copy.set_marks(newest, Streams::kLive | Streams::kLast);
  CHECK(copy.is_last(newest) && copy.live() == original.live());
}

void a_stream_can_jump() {
  Streams streams(1, 40, 0, true, 30);
  for (std::uint64_t seq = 0; seq < 50; ++seq) {
    streams.advance(0, 1, [](std::size_t) {});
    streams.add_step({seq, 0}, false, false, false);
  }
  std::size_t evicted = 0;
  streams.drop_before(0, 25, [&](std::size_t) { ++evicted; });
  CHECK(evicted == 5 && streams.live() == 25);
  streams.jump_to(0, 1007, [&](std::size_t) { ++evicted; });
  CHECK(evicted == 30 && streams.live() == 0);
  streams.advance(0, 1, [](std::size_t) {});
  streams.add_step({1007, 0}, true, true, false);
  CHECK(streams.is_live({1007, 0}) && streams.slot({1007, 0}) == 1007 % 40);
}

void marks_outside_of_the_content_are_dropped() {
  Streams streams(1, 10, 0, true);
  for (std::size_t slot = 0; slot < 10; ++slot) streams.bitmaps()[0]->set(slot);
  streams.head(0).floor = 12;
  streams.head(0).top = 15;
  streams.recount();
  CHECK(streams.live() == 3);
  for (std::size_t slot = 0; slot < 10; ++slot) {
    CHECK(streams.bitmaps()[0]->get(slot) == (slot >= 2 && slot < 5));
  }
}

void untracked_rows_only_count() {
  Streams streams(1, 10, 0, false);
  CHECK(streams.bitmaps().empty());
  for (const std::uint64_t count : {3, 4, 5, 25, 1}) {
    streams.advance(0, count, [](std::size_t) { CHECK(false); });
    streams.add_untracked(count);
    const Streams::Head& head = streams.head(0);
    CHECK(head.live == std::min<std::uint64_t>(head.top, 10) && streams.live() == head.live);
    CHECK(streams.is_live({head.top - 1, 0}) && !streams.is_live({head.top, 0}));
  }
}

void a_pending_observation_is_no_step() {
  Streams streams(1, 8, 0, true);
  streams.advance(0, 3, [](std::size_t) {});
  streams.add_step({0, 0}, true, false, false);
  streams.add_step({1, 0}, false, false, false);
  streams.head(0).pending = true;
  CHECK(streams.last_of({0, 0}, 100) == 1);
  CHECK(!streams.is_live({2, 0}) && streams.live() == 2);
}

}  // namespace

int main() {
  for (const std::size_t n_streams : {1, 3}) {
    for (const std::size_t slots : {1, 2, 5, 63, 64, 65, 130}) {
      for (const std::uint64_t mean_length : {1, 4, 40, 100000}) {
        for (const std::size_t spare : {0, 1, 70}) {
          follow_a_model(n_streams, slots, spare, mean_length);
        }
      }
    }
  }
  restored_marks_count_the_same();
  marks_can_be_read_and_set_as_bytes();
  a_stream_can_jump();
  marks_outside_of_the_content_are_dropped();
  untracked_rows_only_count();
  a_pending_observation_is_no_step();
}
