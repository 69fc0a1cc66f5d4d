#include "core/disk/episode_store.hpp"

#include <sys/stat.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "check.hpp"
#include "test_folder.hpp"

using namespace sharpwave;

namespace {

EpisodeOptions make_options(const TestFolder& folder, bool circular = false) {
  EpisodeOptions options;
  options.folder = folder.path();
  options.steps = {{"wide", 4096, 16}, {"narrow", 8, 8192}};
  options.episodes = {{"task", 8, 8192}};
  options.index_chunk_rows = 4096;
  options.max_episodes = 20;
  options.max_timesteps = 1000;
  options.circular = circular;
  options.identity = 9;
  return options;
}

void make_folder(const TestFolder& folder) {
  ::mkdir((folder / "columns").c_str(), 0777);
  CommitState::create(folder / "state", EpisodeStore::kStateWords);
}

// One step: its number in every place.
void append(EpisodeStore* store, std::uint64_t number) {
  const std::vector<std::uint64_t> wide(512, number);
  const Source sources[] = {{reinterpret_cast<const std::byte*>(wide.data()), 0},
                            {reinterpret_cast<const std::byte*>(&number), 0}};
  store->append(1, sources);
}

void begin(EpisodeStore* store, std::uint64_t task) {
  const Source meta{reinterpret_cast<const std::byte*>(&task), 0};
  store->begin(&meta);
}

void add_episode(EpisodeStore* store, std::uint64_t task, std::size_t length) {
  begin(store, task);
  for (std::size_t t = 0; t < length; ++t) append(store, task * 1000 + t);
  store->end(EpisodeFlag::complete);
}

// Whether all steps of all episodes are what add_episode wrote.
bool is_right(const EpisodeStore& store) {
  const EpisodeTable table = store.table(true);
  for (std::size_t e = 0; e < table.ids.size(); ++e) {
    std::uint64_t task = 0;
    store.gather_meta(&table.ids[e], 1, 0, reinterpret_cast<std::byte*>(&task));
    std::vector<std::int64_t> rows(static_cast<std::size_t>(table.lengths[e]));
    std::iota(rows.begin(), rows.end(), table.starts[e]);
    std::vector<std::uint64_t> wide(rows.size() * 512);
    std::vector<std::uint64_t> narrow(rows.size());
    const std::size_t columns[] = {0, 1};
    std::byte* const out[] = {reinterpret_cast<std::byte*>(wide.data()),
                              reinterpret_cast<std::byte*>(narrow.data())};
    store.gather(rows.data(), rows.size(), columns, 2, out);
    for (std::size_t t = 0; t < rows.size(); ++t) {
      if (narrow[t] != task * 1000 + t) return false;
      for (std::size_t i = 0; i < 512; ++i) {
        if (wide[t * 512 + i] != task * 1000 + t) return false;
      }
    }
  }
  return true;
}

void test_episodes_come_back() {
  const TestFolder folder;
  make_folder(folder);
  {
    EpisodeStore store(make_options(folder), Access::write);
    for (std::uint64_t task = 0; task < 10; ++task) add_episode(&store, task, 50 + task);
    CHECK(store.count_complete() == 10);
    CHECK(is_right(store));
    store.close();
  }
  EpisodeStore store(make_options(folder), Access::read);
  CHECK(store.count_complete() == 10);
  CHECK(is_right(store));
  CHECK(store.verify().chunks.empty());
  CHECK_THROWS(std::runtime_error, store.check_writer());
}

void test_ring_lets_chunks_go() {
  const TestFolder folder;
  make_folder(folder);
  EpisodeStore store(make_options(folder, true), Access::write);
  for (std::uint64_t task = 0; task < 60; ++task) add_episode(&store, task, 40);
  CHECK(store.count_complete() == 20);
  CHECK(is_right(store));
  store.flush();
  const ChunkLayout layout{folder / "columns", "wide", 4096, 16, 1};
  CHECK(layout.on_disk().front() >= 40 * 40 / 16);
  CHECK(store.table(false).ids.front() == 40);
}

void test_an_open_episode_is_aborted_by_the_next_writer() {
  const TestFolder folder;
  make_folder(folder);
  {
    EpisodeStore store(make_options(folder), Access::write);
    add_episode(&store, 0, 5);
    begin(&store, 1);
    for (std::uint64_t t = 0; t < 7; ++t) append(&store, 1000 + t);
    EpisodeStore beside(make_options(folder), Access::read);
    CHECK(beside.count_complete() == 1);
    CHECK(beside.steps_top() == 12);
    // A second writer stands for the one after a crash: the lock is the caller's.
    EpisodeStore next(make_options(folder), Access::write);
    const EpisodeTable table = next.table(true);
    CHECK((table.lengths == std::vector<std::int64_t>{5, 7}));
    CHECK(table.flags[1] == static_cast<std::uint8_t>(EpisodeFlag::aborted));
    CHECK(is_right(next));
  }
}

void test_lanes_become_episodes() {
  const TestFolder folder;
  make_folder(folder);
  EpisodeStore store(make_options(folder), Access::write);
  const std::uint64_t tasks[] = {3, 4, 5};
  const Source meta{reinterpret_cast<const std::byte*>(tasks), 8};
  store.begin_lanes(3, &meta);
  for (std::uint64_t t = 0; t < 100; ++t) {
    std::vector<std::uint64_t> wide(3 * 512);
    std::vector<std::uint64_t> narrow(3);
    std::uint8_t active[3];
    for (std::size_t lane = 0; lane < 3; ++lane) {
      narrow[lane] = tasks[lane] * 1000 + t;
      std::fill_n(wide.begin() + static_cast<std::ptrdiff_t>(lane * 512), 512, narrow[lane]);
      active[lane] = t < 20 + 40 * lane;
    }
    const Source steps[] = {{reinterpret_cast<const std::byte*>(wide.data()), 4096},
                            {reinterpret_cast<const std::byte*>(narrow.data()), 8}};
    store.append_lanes(steps, active);
    if (t == 50) store.flush();
  }
  store.end(EpisodeFlag::complete);
  CHECK((store.table(false).lengths == std::vector<std::int64_t>{20, 60, 100}));
  CHECK(is_right(store));
}

// A reader beside the writer, with files that come and go under it.
void test_readers_see_whole_steps() {
  const TestFolder folder;
  make_folder(folder);
  EpisodeStore store(make_options(folder, true), Access::write);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> read{0};
  const auto keep_reading = [&](EpisodeStore* reader) {
    while (!stop) {
      reader->refresh();
      try {
        CHECK(is_right(*reader));
        ++read;
      } catch (const std::out_of_range&) {  // the writer's own rows went away meanwhile
      }
    }
  };
  EpisodeStore other(make_options(folder, true), Access::read);
  std::thread in_another_store(keep_reading, &other);
  std::thread in_the_same_store(keep_reading, &store);
  for (std::uint64_t task = 0; task < 100 || (read < 10 && task < 1000); ++task) {
    const std::lock_guard<std::mutex> lock(store.writer_mutex());
    add_episode(&store, task, 20);
  }
  stop = true;
  in_another_store.join();
  in_the_same_store.join();
}

void test_limits() {
  const TestFolder folder;
  make_folder(folder);
  EpisodeOptions options = make_options(folder);
  options.max_episodes = 1;
  options.max_timesteps = 2;
  EpisodeStore store(options, Access::write);
  begin(&store, 0);
  append(&store, 0);
  append(&store, 1);
  CHECK_THROWS(std::invalid_argument, append(&store, 2));
  CHECK_THROWS(std::runtime_error, begin(&store, 1));
  store.end(EpisodeFlag::complete);
  CHECK_THROWS(std::invalid_argument, begin(&store, 1));
  CHECK(is_right(store));
}

}  // namespace

int main() {
  test_episodes_come_back();
  test_ring_lets_chunks_go();
  test_an_open_episode_is_aborted_by_the_next_writer();
  test_lanes_become_episodes();
  test_readers_see_whole_steps();
  test_limits();
}
