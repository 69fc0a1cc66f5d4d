// Stores whose files hold anything: words, index rows and journals with checksums that are right.
// Whatever they say, nothing beside the rows is touched; run with the address sanitizer.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "check.hpp"
#include "core/disk/checksum.hpp"
#include "core/disk/episode_store.hpp"
#include "replay_folders.hpp"
#include "splitmix.hpp"
#include "test_folder.hpp"

using namespace sharpwave;

namespace {

constexpr int kRounds = 40;

std::uint64_t strange_number(SplitMix* rng) {
  const std::uint64_t draw = rng->next();
  switch (draw % 4) {
    case 0:
      return (draw >> 8) % 40;
    case 1:
      return std::uint64_t{1} << (draw >> 8) % 64;
    case 2:
      return std::numeric_limits<std::uint64_t>::max() - (draw >> 8) % 3;
    default:
      return draw;
  }
}

std::vector<char> read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::vector<char>& data) {
  std::ofstream(path, std::ios::binary)
      .write(data.data(), static_cast<std::streamsize>(data.size()));
}

// Words in memory and in both copies, as `CommitState` lays them out.
void forge_words(const std::string& path, std::size_t n_words, SplitMix* rng) {
  std::vector<char> data = read_all(path);
  std::vector<std::uint64_t> words(n_words + 2);
  std::memcpy(&words[1], data.data() + 64, n_words * 8);
  for (std::uint64_t i = rng->next() % 3 + 1; i-- > 0;)
    words[1 + rng->next() % n_words] = strange_number(rng);
  std::memcpy(data.data() + 64, &words[1], n_words * 8);
  const std::uint64_t seal =
      rng->next() % 2 == 0 ? 0 : crc32c(0, &words[1], n_words * 8) | std::uint64_t{1} << 32;
  std::memcpy(data.data() + 32, &seal, 8);
  for (std::size_t slot = 0; slot < 2 && rng->next() % 4 != 0; ++slot) {
    words[0] = 100 + slot;
    words.back() = crc32c(0, words.data(), (n_words + 1) * 8) | std::uint64_t{1} << 32;
    std::memcpy(data.data() + 4096 * (1 + slot), words.data(), words.size() * 8);
  }
  write_all(path, data);
}

void forge_index(const std::string& path, SplitMix* rng) {
  std::vector<char> data = read_all(path);
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t number = strange_number(rng);
    std::memcpy(data.data() + rng->next() % 10 * 8, &number, 8);
  }
  write_all(path, data);
}

void forge_journal(const std::string& path, SplitMix* rng) {
  std::vector<std::uint64_t> numbers{0, strange_number(rng) % 5};
  std::memcpy(numbers.data(), "swpatch\n", 8);
  for (std::uint64_t i = rng->next() % 30; i-- > 0;) numbers.push_back(strange_number(rng));
  std::vector<char> data(numbers.size() * 8 + 4);
  std::memcpy(data.data(), numbers.data(), numbers.size() * 8);
  const std::uint32_t checksum = crc32c(0, data.data(), data.size() - 4);
  std::memcpy(data.data() + data.size() - 4, &checksum, 4);
  write_all(path, data);
}

EpisodeOptions episode_options(const std::string& path) {
  EpisodeOptions options;
  options.folder = path;
  options.steps = {{"wide", 4096, 16}, {"narrow", 8, 8192}};
  options.episodes = {{"task", 8, 8192}};
  options.index_chunk_rows = 4096;
  options.max_episodes = 20;
  options.max_timesteps = 1000;
  options.identity = 9;
  return options;
}

void fill(EpisodeStore* store, std::size_t lanes) {
  const std::vector<std::byte> rows(4096 * 40);
  const Source steps[] = {{rows.data(), 4096}, {rows.data(), 8}};
  const Source meta{rows.data(), 8};
  for (int i = 0; i < 3; ++i) store->store_episode(30, steps, &meta);
  if (lanes == 0) return;
  store->begin_lanes(lanes, &meta);
  const std::vector<std::uint8_t> active(lanes, 1);
  for (int i = 0; i < 5; ++i) store->append_lanes(steps, active.data());
}

void read(const EpisodeStore& store) {
  const EpisodeTable table = store.table(true, true);
  const std::size_t columns[] = {0, 1};
  for (std::size_t e = 0; e < table.ids.size(); ++e) {
    const auto length = static_cast<std::size_t>(table.lengths[e]);
    std::vector<std::byte> wide(length * 4096);
    std::vector<std::byte> narrow(length * 8);
    std::byte* const out[] = {wide.data(), narrow.data()};
    store.gather_ranges(&table.starts[e], &table.lengths[e], 1, length, columns, 2, out);
    std::uint64_t task = 0;
    store.gather_meta(&table.ids[e], 1, 0, reinterpret_cast<std::byte*>(&task));
  }
}

void forged_episodes_are_errors_or_rows() {
  SplitMix rng{11};
  for (const std::size_t lanes : {std::size_t{0}, std::size_t{4}}) {
    const TestFolder folder;
    const std::string sound = folder / "sound";
    const std::string forged = folder / "forged";
    std::filesystem::create_directories(folder / "open/columns");
    CommitState::create(folder / "open/state", EpisodeStore::kStateWords);
    {
      EpisodeStore store(episode_options(folder / "open"), Access::write);
      fill(&store, lanes);
      store.flush();
      std::filesystem::copy(folder / "open", sound, std::filesystem::copy_options::recursive);
    }
    for (int round = 0; round < kRounds; ++round) {
      std::filesystem::remove_all(forged);
      std::filesystem::copy(sound, forged, std::filesystem::copy_options::recursive);
      const std::uint64_t what = rng.next() % 4;
      if (what < 2) forge_words(forged + "/state", EpisodeStore::kStateWords, &rng);
      if (what == 2) forge_index(forged + "/columns/_episodes.000000000000", &rng);
      if (what == 3) forge_journal(forged + "/update.journal", &rng);
      try {
        EpisodeStore store(episode_options(forged),
                           rng.next() % 3 == 0 ? Access::read : Access::write, rng.next() % 2 == 0);
        read(store);
        if (store.is_writer()) fill(&store, 2);
      } catch (const std::exception&) {  // whatever it says is better than a signal
      }
    }
  }
}

void push_step(Replay* replay, std::uint64_t number, std::size_t n_streams) {
  const auto value = static_cast<float>(number);
  const Step step = make_step(value, value + 1, value, number % 9 == 8);
  const auto stream = static_cast<std::uint32_t>(n_streams == 0 ? 0 : number % n_streams);
  replay->push(1, StepSources(&step).sources, n_streams == 0 ? nullptr : &stream, nullptr);
}

void read(Replay* replay) {
  const View view;
  const std::vector<std::uint64_t> ids = replay->ids(view);
  if (ids.empty()) return;
  std::vector<Anchor> anchors;
  replay->find(ids.data(), ids.size(), &anchors);
  StepBatch batch(ids.size());
  Slots slots;
  replay->read(view, anchors, &slots, batch.out);
}

void forged_replay_is_errors_or_rows() {
  SplitMix rng{12};
  for (const std::size_t streams : {std::size_t{0}, std::size_t{3}}) {
    const TestFolder folder;
    const std::string forged = folder / "forged";
    {
      Replay replay(folder_options(folder / "sound", streams, true));
      for (std::uint64_t i = 0; i < 300; ++i) push_step(&replay, i, streams);
    }
    const std::size_t words = ReplayFolder::n_words(std::max<std::size_t>(streams, 1), 5);
    for (int round = 0; round < kRounds; ++round) {
      std::filesystem::remove_all(forged);
      std::filesystem::copy(folder / "sound", forged, std::filesystem::copy_options::recursive);
      forge_words(forged + "/state", words, &rng);
      ReplayOptions options = folder_options(forged, streams, true);
      options.folder->access = rng.next() % 3 == 0 ? Access::read : Access::write;
      options.folder->repair = rng.next() % 2 == 0;
      options.folder->verify = options.folder->repair;
      try {
        Replay replay(std::move(options));
        read(&replay);
        if (replay.options().folder->access == Access::write) push_step(&replay, 1, streams);
      } catch (const std::exception&) {
      }
    }
  }
}

}  // namespace

int main() {
  forged_episodes_are_errors_or_rows();
  forged_replay_is_errors_or_rows();
  return 0;
}
