#include <cstring>
#include <map>
#include <vector>

#include "core/writer.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

struct Rows {
  Rows(Layout layout, std::size_t n_streams, std::size_t steps)
      : schema(step_schema()),
        slots(steps + (layout == Layout::stream ? 1 : 0)),
        store(schema, layout, slots * n_streams),
        streams(n_streams, slots, 0, true),
        writer(schema, layout, &store, &streams) {}

  Anchor push(std::uint32_t stream, const Step& step) {
    return writer.push(stream, StepSources(&step).sources, 0, [&](std::size_t slot) {
      CHECK(slot / slots == stream);
      ++evicted;
    });
  }
  template <typename T>
  T read(std::size_t slot, StepField field) const {
    T value;
    std::memcpy(&value, store.record(slot) + store.column(field).offset, sizeof(T));
    return value;
  }

  Schema schema;
  std::size_t slots;
  RowStore store;
  Streams streams;
  Writer writer;
  std::size_t evicted = 0;
};

// Random episodes of several environments: every step still there reads as it was pushed.
void keeps_steps_as_pushed(Layout layout, std::size_t n_streams, std::size_t steps) {
  Rows rows(layout, n_streams, steps);
  std::map<std::uint64_t, Step> pushed;
  std::vector<float> obs(n_streams, 0.0F);
  SplitMix random(steps * 10 + n_streams);
  float next_number = 1.0F;
  const std::size_t count = 6 * steps * n_streams + 40;
  for (std::size_t i = 0; i < count; ++i) {
    const auto stream = static_cast<std::uint32_t>(random.below(n_streams));
    if (random.below(10) == 0) obs[stream] = next_number++;  // a reset nobody told about
    const bool terminated = random.below(8) == 0;
    const bool truncated = random.below(8) == 0;
    const Step step =
        make_step(obs[stream], next_number, static_cast<float>(i), terminated, truncated);
    const Anchor anchor = rows.push(stream, step);
    CHECK(rows.streams.is_live(anchor));
    pushed[rows.streams.id(anchor)] = step;
    obs[stream] = terminated || truncated ? next_number + 1.0F : next_number;
    next_number += 2.0F;

    std::size_t live = 0;
    for (const auto& [id, expected] : pushed) {
      const Anchor one = rows.streams.anchor(id);
      if (!rows.streams.is_live(one)) continue;
      ++live;
      const std::size_t slot = rows.streams.slot(one);
      const std::size_t next =
          layout == Layout::stream ? rows.streams.slot(one.stream, one.seq + 1) : slot;
      const auto next_field = layout == Layout::stream ? kObs : kNextObs;
      CHECK(rows.read<float>(slot, kObs) == expected.obs[0]);
      CHECK(rows.read<float>(next, next_field) == expected.next_obs[0]);
      CHECK(rows.read<float>(slot, kReward) == expected.reward);
      CHECK(rows.read<bool>(slot, kTerminated) == expected.terminated);
      CHECK(rows.streams.is_last(one) >= (expected.terminated || expected.truncated));
    }
    CHECK(live == rows.streams.live());
    CHECK(live + rows.evicted == pushed.size());
  }
}

void an_observation_is_stored_once() {
  Rows rows(Layout::stream, 1, 10);
  for (int i = 0; i < 50; ++i) {
    const auto number = static_cast<float>(i);
    rows.push(0, make_step(number, number + 1.0F, number));
    CHECK(rows.streams.head(0).top == static_cast<std::uint64_t>(i) + 2);
    CHECK(rows.streams.live() == static_cast<std::uint64_t>(i < 10 ? i + 1 : 10));
  }
}

void a_jump_of_the_observation_ends_the_episode() {
  Rows rows(Layout::stream, 1, 10);
  const Anchor first = rows.push(0, make_step(1.0F, 2.0F, 0.0F));
  CHECK(!rows.streams.is_last(first));
  const Anchor second = rows.push(0, make_step(7.0F, 8.0F, 0.0F));
  CHECK(rows.streams.is_last(first) && rows.streams.is_first(second));
  CHECK(second.seq == first.seq + 2);  // the observation after the first step stays
}

void blocks_wrap_around_and_skip_what_they_would_overwrite() {
  Schema schema = step_schema();
  SplitMix random(5);
  for (const std::size_t capacity : {1, 2, 31, 32, 33, 100}) {
    RowStore store(schema, Layout::transition, capacity);
    Streams streams(1, capacity, 0, false);
    Writer writer(schema, Layout::transition, &store, &streams);
    std::vector<float> model(capacity, 0.0F);
    std::uint64_t top = 0;
    for (int round = 0; round < 20; ++round) {
      std::vector<Step> steps(random.below(3 * capacity) + 1);
      for (Step& step : steps) {
        const auto number = static_cast<float>(top);
        step = make_step(number, number + 0.5F, number);
        model[top++ % capacity] = number;
      }
      CHECK(writer.push_block(StepSources(steps.data()).sources, steps.size()) ==
            (top - steps.size()) % capacity);
      CHECK(streams.live() == std::min<std::uint64_t>(top, capacity));
      for (std::size_t slot = 0; slot < std::min<std::uint64_t>(top, capacity); ++slot) {
        float values[2];
        std::memcpy(values, store.record(slot) + store.column(kNextObs).offset, 8);
        CHECK(values[0] == model[slot] + 0.5F && values[1] == -values[0]);
      }
    }
  }
}

// Stacked frames 0 1 2, 1 2 3, ...: every frame once, and whole stacks after a reset.
void stacks_share_their_frames() {
  Schema schema;
  schema.fields = {{"obs", DType::uint8, {3, 2}, Role::obs, 3, 0, false, -1},
                   {"next_obs", DType::uint8, {3, 2}, Role::next_obs, 3, 0, false, 0}};
  constexpr std::size_t kSteps = 8;
  RowStore store(schema, Layout::stream, kSteps + 3);
  Streams streams(1, kSteps + 3, 2, true);
  Writer writer(schema, Layout::stream, &store, &streams);
  CHECK(store.stride() == 2);
  const auto stack = [](int newest) {
    std::vector<std::uint8_t> frames;
    for (int frame = newest - 2; frame <= newest; ++frame) {
      frames.insert(frames.end(),
                    {static_cast<std::uint8_t>(frame), static_cast<std::uint8_t>(frame + 100)});
    }
    return frames;
  };
  std::uint64_t top = 0;
  for (int i = 2; i < 40; ++i) {
    const auto obs = stack(i);
    const auto next = stack(i + 1);
    const Source sources[] = {{reinterpret_cast<const std::byte*>(obs.data()), 6},
                              {reinterpret_cast<const std::byte*>(next.data()), 6}};
    const Anchor anchor = writer.push(0, sources, 0, [](std::size_t) {});
    CHECK(streams.head(0).top == top + (i == 2 ? 4U : 1U));
    top = streams.head(0).top;
    for (std::uint64_t back = 0; back < 3; ++back) {
      const auto* frame = store.record(streams.slot(0, anchor.seq - back));
      CHECK(static_cast<int>(frame[0]) == i - static_cast<int>(back));
    }
    CHECK(streams.live() == static_cast<std::uint64_t>(std::min<int>(i - 1, kSteps)));
  }
}

}  // namespace

int main() {
  for (const Layout layout : {Layout::transition, Layout::stream}) {
    for (const std::size_t steps : {1, 2, 7, 30}) {
      keeps_steps_as_pushed(layout, 1, steps);
      keeps_steps_as_pushed(layout, 3, steps);
    }
  }
  an_observation_is_stored_once();
  a_jump_of_the_observation_ends_the_episode();
  blocks_wrap_around_and_skip_what_they_would_overwrite();
  stacks_share_their_frames();
}
