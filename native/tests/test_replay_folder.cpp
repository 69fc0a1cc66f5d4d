#include <numeric>
#include <vector>

#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/replay_folders.hpp"
#include "tests/splitmix.hpp"

namespace {

using namespace sharpwave;

// Steps that follow from a seed, the same for every buffer that they are pushed to.
class Life {
 public:
  Life(std::size_t n_streams, bool priorities) : streams_(n_streams), priorities_(priorities) {}

  void push(std::vector<Replay*> replays) {
    const std::size_t n = 1 + random_.below(40);
    std::vector<Step> steps;
    std::vector<std::uint32_t> streams;
    std::vector<float> priorities;
    for (std::size_t i = 0; i < n; ++i) {
      const auto number = static_cast<float>(++number_);
      const bool cut = random_.below(9) == 0;  // the next observation is not this one's
      steps.push_back(
          make_step(number, number + (cut ? 0.5F : 1.0F), number, random_.below(20) == 0));
      streams.push_back(
          static_cast<std::uint32_t>(random_.below(std::max<std::size_t>(streams_, 1))));
      priorities.push_back(static_cast<float>(random_.uniform()) * 3.0F);
    }
    for (Replay* replay : replays) {
      replay->push(n, StepSources(steps.data()).sources, streams.data(),
                   priorities_ ? priorities.data() : nullptr);
    }
  }
  SplitMix& random() { return random_; }

 private:
  std::size_t streams_;
  bool priorities_;
  int number_ = 0;
  SplitMix random_{7};
};

std::vector<float> rewards(Replay* replay, const std::vector<std::uint64_t>& ids) {
  std::vector<Anchor> anchors;
  Slots slots;
  StepBatch batch(ids.size());
  replay->find(ids.data(), ids.size(), &anchors);
  replay->read(View{}, anchors, &slots, batch.out);
  return batch.rewards;
}

void check_equal(Replay* got, Replay* expected) {
  const auto ids = expected->ids(View{});
  CHECK(got->ids(View{}) == ids && got->streams().live() == expected->streams().live());
  CHECK(rewards(got, ids) == rewards(expected, ids));
  View windows;
  windows.kind = View::Kind::sequence;
  windows.length = 3;
  if (expected->streams().tracked()) CHECK(got->ids(windows) == expected->ids(windows));
  for (const std::uint64_t id : ids) {
    const Anchor anchor = expected->streams().anchor(id);
    if (!expected->priorities()) continue;
    const std::size_t slot = expected->streams().slot(anchor);
    CHECK(got->priorities()->leaf(slot) == expected->priorities()->leaf(slot));
  }
  if (expected->priorities()) {
    CHECK(got->priorities()->total() == expected->priorities()->total());
    CHECK(got->priorities()->max_priority() == expected->priorities()->max_priority());
  }
}

void a_reopened_buffer_is_the_same(std::size_t n_streams, bool priorities) {
  const TestFolder folder;
  auto replay = std::make_unique<Replay>(folder_options(folder / "a", n_streams, priorities));
  Replay twin(folder_options(folder / "b", n_streams, priorities));
  Life life(n_streams, priorities);
  for (int round = 0; round < 150; ++round) {
    life.push({replay.get(), &twin});
    if (life.random().below(60) == 0) {
      replay->clear();
      twin.clear();
    }
    if (life.random().below(8) != 0) continue;
    if (life.random().below(2) == 0) replay->close(true);
    replay.reset();
    replay = std::make_unique<Replay>(folder_options(folder / "a", n_streams, priorities));
    check_equal(replay.get(), &twin);
  }
}

void readers_follow(std::size_t n_streams, bool priorities) {
  const TestFolder folder;
  const ReplayOptions options = folder_options(folder / "a", n_streams, priorities);
  Replay writer(options);
  ReplayOptions read_only = options;
  read_only.folder->access = Access::read;
  Replay reader(read_only);
  Life life(n_streams, priorities);
  for (int round = 0; round < 200; ++round) {
    life.push({&writer});
    if (life.random().below(80) == 0) writer.clear();
    if (priorities && writer.streams().live() > 0 && life.random().below(3) == 0) {
      const auto ids = writer.ids(View{});
      const float priority = 5.0F;
      writer.update_priorities(&ids[life.random().below(ids.size())], &priority, 1);
    }
    // Now and then the writer goes round the ring in between.
    if (life.random().below(life.random().below(2) == 0 ? 4 : 60) != 0) continue;
    CHECK(reader.is_stale());
    reader.refresh();
    CHECK(!reader.is_stale());
    check_equal(&reader, &writer);
  }
  const Step step = make_step(1.0F, 2.0F, 3.0F);
  CHECK_THROWS(IoError, reader.push(1, StepSources(&step).sources, nullptr, nullptr));
  CHECK_THROWS(IoError, reader.clear());
}

void a_closed_buffer_is_empty() {
  const TestFolder folder;
  Replay replay(folder_options(folder / "a", 0, false));
  Life(0, false).push({&replay});
  replay.close(true);
  CHECK(replay.is_closed() && replay.streams().live() == 0 && replay.ids(View{}).empty());
  const Step step = make_step(1.0F, 2.0F, 3.0F);
  CHECK_THROWS(std::invalid_argument, replay.push(1, StepSources(&step).sources, nullptr, nullptr));
  CHECK_THROWS(std::invalid_argument, replay.flush());
  replay.close(true);
}

void columns_that_do_not_fit_are_refused() {
  const TestFolder folder;
  const auto refused = [&](auto change) {
    ReplayOptions options = folder_options(folder / "a", 1, false);
    change(&*options.folder);
    CHECK_THROWS(std::invalid_argument, Replay(options));
  };
  refused([](FolderOptions* options) { options->row_bytes = 8; });
  refused([](FolderOptions* options) { options->chunk_rows = 1; });
  refused([](FolderOptions* options) { --options->max_chunks; });
  Replay(folder_options(folder / "a", 1, false));
}

}  // namespace

int main() {
  for (const std::size_t n_streams : {0, 1, 3}) {
    for (const bool priorities : {false, true}) {
      a_reopened_buffer_is_the_same(n_streams, priorities);
      readers_follow(n_streams, priorities);
    }
  }
  a_closed_buffer_is_empty();
  columns_that_do_not_fit_are_refused();
}
