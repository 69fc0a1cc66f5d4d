#include <vector>

#include "core/arrivals.hpp"
#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

struct Row {
  float obs;
  float reward;
  bool first, last, terminal;
  std::uint64_t id;
};

// Random steps of one stream in both layouts, and the rows that they should become.
void rows_are_observations_with_what_led_there(Layout layout, std::uint64_t seed) {
  ReplayOptions options;
  options.schema = step_schema();
  options.layout = layout;
  options.capacity = 500;
  options.n_streams = 1;
  Replay replay(std::move(options));
  SplitMix random(seed);
  std::vector<Row> rows;
  std::vector<std::size_t> row_of_step;
  float obs = 0.0F;
  bool open = false;
  for (int i = 0; i < 200; ++i) {
    const auto number = static_cast<float>(i + 1);
    const bool terminated = random.below(9) == 0;
    const bool truncated = random.below(9) == 0;
    // Now and then an episode ends where the next one begins.
    const float next = random.below(3) == 0 ? 0.0F : number;
    const Step step = make_step(obs, next, number * 0.25F, terminated, truncated);
    replay.push(1, StepSources(&step).sources, nullptr, nullptr);
    const std::uint64_t id = replay.ids(View{}).back();
    row_of_step.push_back(rows.size());
    const float led_here = open ? static_cast<float>(i) * 0.25F : 0.0F;
    rows.push_back({obs, led_here, !open, false, false, id});
    open = !(terminated || truncated);
    obs = open ? next : 0.0F;
    if (!open) rows.push_back({next, number * 0.25F, false, true, terminated, kNoStep});
  }
  View view;
  view.kind = View::Kind::sequence;
  view.arrivals = true;
  view.cross = true;
  view.length = 7;
  Slots slots;
  const std::vector<std::uint64_t> ids = replay.ids(View{});
  for (std::size_t step = 0; step < ids.size(); ++step) {
    const Anchor anchor = replay.streams().anchor(ids[step]);
    const std::size_t begin = row_of_step[step];
    CHECK(accepts(view, replay.streams(), anchor) == (begin + view.length <= rows.size()));
    float got_obs[14];
    float rewards[7];
    std::uint8_t mask[7], first[7], last[7], terminal[7];
    std::uint64_t indices[7];
    BatchOut out;
    out.fields.resize(kStepFields);
    out.fields[kObs] = reinterpret_cast<std::byte*>(got_obs);
    out.fields[kReward] = reinterpret_cast<std::byte*>(rewards);
    out.mask = mask;
    out.is_first = first;
    out.is_last = last;
    out.is_terminal = terminal;
    out.indices = indices;
    replay.read(view, {anchor}, &slots, out);
    for (std::size_t i = 0; i < view.length; ++i) {
      const bool there = begin + i < rows.size();
      CHECK(mask[i] == there);
      if (!there) continue;
      const Row& row = rows[begin + i];
      CHECK(got_obs[2 * i] == row.obs && got_obs[2 * i + 1] == -row.obs);
      CHECK(rewards[i] == row.reward);
      CHECK(first[i] == row.first && last[i] == row.last && terminal[i] == row.terminal);
      CHECK(indices[i] == row.id);
    }
  }
}

}  // namespace

int main() {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    rows_are_observations_with_what_led_there(Layout::stream, seed);
    rows_are_observations_with_what_led_there(Layout::transition, seed);
  }
  return 0;
}
