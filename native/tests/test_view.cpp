#include <cmath>
#include <vector>

#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

// A buffer of random episodes, and the same steps as plain lists by stream.
struct Episodes {
  Episodes(Layout layout, std::size_t n_streams, std::size_t capacity, std::uint64_t seed)
      : replay(options(layout, n_streams, capacity)), pushed(n_streams) {
    SplitMix random(seed);
    std::vector<float> obs(n_streams, 0.0F);
    float number = 1.0F;
    for (std::size_t i = 0; i < 3 * capacity; ++i) {
      const auto stream = static_cast<std::uint32_t>(random.below(n_streams));
      const bool terminated = random.below(9) == 0;
      const bool truncated = random.below(9) == 0;
      const Step step = make_step(obs[stream], number, number * 0.25F, terminated, truncated);
      replay.push(1, StepSources(&step).sources, &stream, nullptr);
      pushed[stream].push_back(step);
      obs[stream] = terminated || truncated ? number + 1.0F : number;
      number += 2.0F;
    }
    for (const std::uint64_t id : replay.ids(View{})) ids.push_back(id);
    for (std::uint32_t stream = 0; stream < n_streams; ++stream) {
      std::size_t count = 0;
      for (const std::uint64_t id : ids) count += replay.streams().anchor(id).stream == stream;
      auto& list = pushed[stream];
      list.erase(list.begin(), list.end() - static_cast<std::ptrdiff_t>(count));
    }
  }

  static ReplayOptions options(Layout layout, std::size_t n_streams, std::size_t capacity) {
    ReplayOptions made;
    made.schema = step_schema();
    made.layout = layout;
    made.capacity = capacity;
    made.n_streams = n_streams;
    return made;
  }

  // Calls body(anchor, list, position) for every step, oldest first.
  template <typename Body>
  void each(Body&& body) {
    std::vector<std::size_t> seen(pushed.size());
    for (const std::uint64_t id : ids) {
      const Anchor anchor = replay.streams().anchor(id);
      body(anchor, pushed[anchor.stream], seen[anchor.stream]++);
    }
  }

  Replay replay;
  std::vector<std::vector<Step>> pushed;
  std::vector<std::uint64_t> ids;
};

bool ends(const Step& step) { return step.terminated || step.truncated; }

void n_steps_stop_at_ends_and_at_the_data(Episodes& episodes, std::uint32_t n) {
  View view;
  view.kind = View::Kind::n_step;
  view.n = n;
  view.gamma = 0.9;
  Slots slots;
  StepBatch batch(1);
  episodes.each([&](Anchor anchor, const std::vector<Step>& list, std::size_t at) {
    CHECK(accepts(view, episodes.replay.streams(), anchor));
    episodes.replay.read(view, {anchor}, &slots, batch.out);
    double sum = 0.0;
    std::size_t last = at;
    for (std::uint32_t i = 0; i < n; ++i) {
      last = at + i;
      sum += std::pow(0.9, i) * list[last].reward;
      if (ends(list[last]) || last + 1 == list.size()) break;
    }
    const auto taken = static_cast<double>(last - at + 1);
    CHECK(batch.obs[0] == list[at].obs[0] && batch.obs[1] == list[at].obs[1]);
    CHECK(batch.next_obs[0] == list[last].next_obs[0]);
    CHECK(std::fabs(batch.rewards[0] - sum) <= 1e-5 * (1.0 + std::fabs(sum)));
    CHECK(batch.terminated[0] == list[last].terminated);
    CHECK(batch.truncated[0] == list[last].truncated);
    const double discount = list[last].terminated ? 0.0 : std::pow(0.9, taken);
    CHECK(std::fabs(batch.discounts[0] - discount) < 1e-6);
    CHECK(batch.ids[0] == episodes.replay.streams().id(anchor));
  });
}

// What a window of the list holds: positions, or -1 where there is no step.
std::vector<long> naive_window(const View& view, const std::vector<Step>& list, std::size_t at) {
  std::vector<long> window(view.rows(), -1);
  bool in_episode = true;
  for (std::uint32_t i = 0; i < view.length && in_episode; ++i) {
    if (at + i >= list.size()) break;
    window[view.burn_in + i] = static_cast<long>(at + i);
    in_episode = view.cross || !ends(list[at + i]);
  }
  for (std::uint32_t back = 1; back <= view.burn_in; ++back) {
    if (back > at || (!view.cross && ends(list[at - back]))) break;
    window[view.burn_in - back] = static_cast<long>(at - back);
  }
  return window;
}

bool naive_accepts(const View& view, const std::vector<Step>& list, std::size_t at) {
  std::size_t first = at;
  while (first > 0 && !ends(list[first - 1])) --first;
  if ((at - first) % view.stride != 0) return false;
  if (view.pad == View::Pad::tail) return true;
  const std::vector<long> window = naive_window(view, list, at);
  const bool before = view.burn_in == 0 || window.front() >= 0;
  const bool after = window.back() >= 0;
  if (before && after) return true;
  return view.pad == View::Pad::whole && !after && first == at;
}

void windows_are_those_of_the_lists(Episodes& episodes, const View& view) {
  Slots slots;
  StepBatch batch(view.rows(), 1);
  batch.out.mask = batch.mask.data();
  batch.out.is_first = batch.is_first.data();
  episodes.each([&](Anchor anchor, const std::vector<Step>& list, std::size_t at) {
    CHECK(accepts(view, episodes.replay.streams(), anchor) == naive_accepts(view, list, at));
    episodes.replay.read(view, {anchor}, &slots, batch.out);
    const std::vector<long> window = naive_window(view, list, at);
    for (std::size_t row = 0; row < view.rows(); ++row) {
      CHECK(batch.mask[row] == (window[row] >= 0));
      if (window[row] < 0) {
        CHECK(batch.obs[2 * row] == 0.0F && batch.next_obs[2 * row] == 0.0F);
        CHECK(batch.rewards[row] == 0.0F && batch.discounts[row] == 0.0F);
        CHECK(!batch.is_first[row]);
        continue;
      }
      const Step& step = list[static_cast<std::size_t>(window[row])];
      CHECK(batch.obs[2 * row] == step.obs[0] && batch.next_obs[2 * row] == step.next_obs[0]);
      CHECK(batch.rewards[row] == step.reward);
      CHECK(batch.discounts[row] == (step.terminated ? 0.0F : static_cast<float>(view.gamma)));
      if (window[row] > 0) {  // of the oldest step the list does not tell
        CHECK(batch.is_first[row] == ends(list[static_cast<std::size_t>(window[row]) - 1]));
      }
    }
  });
}

void windows_of_every_kind(Episodes& episodes) {
  for (const View::Pad pad : {View::Pad::none, View::Pad::tail, View::Pad::whole}) {
    for (const std::uint32_t length : {1U, 2U, 5U, 90U}) {
      for (const std::uint32_t burn_in : {0U, 1U, 4U}) {
        for (const bool cross : {false, true}) {
          View view;
          view.kind = View::Kind::sequence;
          view.gamma = 0.5;
          view.length = length;
          view.burn_in = burn_in;
          view.pad = pad;
          view.cross = cross;
          view.stride = 1 + (length + burn_in) % 3;
          windows_are_those_of_the_lists(episodes, view);
        }
      }
    }
  }
}

}  // namespace

int main() {
  for (const Layout layout : {Layout::stream, Layout::transition}) {
    for (const std::size_t n_streams : {1, 3}) {
      Episodes episodes(layout, n_streams, 66, n_streams);
      for (const std::uint32_t n : {1U, 2U, 3U, 10U, 1000U, 0x7fffffffU}) {
        n_steps_stop_at_ends_and_at_the_data(episodes, n);
      }
      windows_of_every_kind(episodes);
    }
  }
}
