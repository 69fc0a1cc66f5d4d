// Whole episodes on disk: steps in one column per field, and one row per episode that says where
// its steps lie.
//
// Rows and episodes are numbered for ever. A step is committed by the word `steps_top`, an episode
// by its own word (length and flag), which is written last; both are single 8-byte stores, so that
// the death of the process at any moment leaves exactly what was committed. Ring mode moves the
// fronts and lets old chunks go.
//
// One thread at a time writes (the caller holds `writer_mutex`); any number read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/disk/caretaker.hpp"
#include "core/disk/commit_state.hpp"
#include "core/disk/disk_column.hpp"

namespace sharpwave {

enum class EpisodeFlag : std::uint8_t { open = 0, complete = 1, aborted = 2, lost = 3 };

struct EpisodeOptions {
  std::string folder;
  std::vector<ColumnSpec> steps;     // one per field
  std::vector<ColumnSpec> episodes;  // one per field of episodes
  std::size_t index_chunk_rows = 0;  // of the column that says where the steps lie
  std::uint64_t max_episodes = 0;
  std::uint64_t max_timesteps = 0;
  bool circular = false;
  bool power = false;  // every commit waits for the disk
};

struct EpisodeRow {
  std::uint64_t start;
  std::uint64_t word;  // length << 8 | flag

  std::uint64_t length() const { return word >> 8; }
  EpisodeFlag flag() const { return static_cast<EpisodeFlag>(word & 0xff); }
};

struct EpisodeTable {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> lengths;
  std::vector<std::uint8_t> flags;
};

class EpisodeStore {
 public:
  static constexpr std::size_t kStateWords = 16;  // some are kept for what may come
  // The column that says where the steps of episodes lie.
  static constexpr std::size_t kIndexRowBytes = sizeof(EpisodeRow);

  // Opens a store. A writer, who must hold the folder's lock, marks an episode that a dead one left
  // open as aborted.
  EpisodeStore(EpisodeOptions options, Access access);
  ~EpisodeStore();
  EpisodeStore(const EpisodeStore&) = delete;
  EpisodeStore& operator=(const EpisodeStore&) = delete;

  const EpisodeOptions& options() const { return options_; }
  bool is_writer() const { return access_ == Access::write; }
  std::mutex& writer_mutex() { return writer_mutex_; }

  // Writing. All throw before anything is changed.

  // Throws unless this process may write.
  void check_writer() const;
  // Throws std::invalid_argument when there is no room for this many episodes.
  void check_room(std::uint64_t episodes) const;
  bool has_open() const { return open_; }
  std::uint64_t open_length() const { return open_ ? steps_top() - open_start_ : 0; }
  // Starts an episode with these values of the fields of episodes.
  void begin(const Source* meta);
  // Adds n steps to the open episode.
  void append(std::size_t n, const Source* steps);
  // Whether `append` of n steps needs no call to the system.
  bool is_ready(std::size_t n) const { return steps_top() + n <= ready_ && !options_.power; }
  // Writes a field of the open episode anew.
  void set_meta(std::size_t column, const std::byte* value);
  // Ends the open episode.
  void end(EpisodeFlag flag);
  // Forgets everything.
  void clear();
  // Waits until all that was committed is on the disk.
  void flush();
  // Starts, fills and ends an episode at once.
  void store_episode(std::size_t n, const Source* steps, const Source* meta);
  // Ends the open episode as aborted and flushes. Only reading goes on.
  void close();

  // Reading, in any thread.

  // Shows what another process has committed since.
  void refresh();
  std::uint64_t steps_front() const { return visible_[kStepsFront].load(); }
  std::uint64_t steps_top() const { return visible_[kStepsTop].load(std::memory_order_acquire); }
  std::uint64_t count_complete() const;
  // Finished episodes, oldest first.
  EpisodeTable table(bool aborted) const;
  // Copies rows of fields. Row -1 gives zeros; throws std::out_of_range for one that is not there.
  void gather(const std::int64_t* rows, std::size_t n, const std::size_t* columns,
              std::size_t n_columns, std::byte* const* out) const;
  // Copies [starts[i], starts[i] + lengths[i]) to a row of `width` steps, zeros behind.
  void gather_ranges(const std::int64_t* starts, const std::int64_t* lengths, std::size_t n,
                     std::size_t width, const std::size_t* columns, std::size_t n_columns,
                     std::byte* const* out) const;
  // Copies a field of episodes by their ids.
  void gather_meta(const std::int64_t* ids, std::size_t n, std::size_t column,
                   std::byte* out) const;

 private:
  enum Word : std::size_t { kStepsFront, kStepsTop, kEpisodesFront, kEpisodesTop, kWords };
  static constexpr std::size_t kFinished = kWords;  // of copies: episodes below will not change
  using Snapshot = std::vector<std::uint64_t>;      // the words of a state

  std::uint64_t visible(Word word) const { return visible_[word].load(std::memory_order_acquire); }
  void commit(Word word, std::uint64_t value);
  EpisodeRow* index_row(std::uint64_t episode) const;
  EpisodeRow read_row(std::uint64_t episode) const;
  void open_columns();
  void recover();
  void check_length(std::uint64_t length) const;
  void make_room(std::uint64_t steps, std::uint64_t episodes);
  void evict();
  void set_fronts(std::uint64_t episodes_front);
  // Asks the caretaker for what is due: new files ahead, full ones to the disk, old ones gone.
  void take_care();
  Snapshot snapshot() const;
  void write_through(const Snapshot& snapshot);
  void drop_old(const Snapshot& snapshot);
  void tidy(const Snapshot& snapshot) noexcept;

  EpisodeOptions options_;
  Access access_;
  unsigned long process_;  // that opened the store
  std::unique_ptr<CommitState> state_;
  std::vector<std::unique_ptr<DiskColumn>> steps_;
  std::vector<std::unique_ptr<DiskColumn>> episodes_;  // the last is the index
  std::atomic<std::uint64_t> visible_[kWords] = {};

  std::mutex writer_mutex_;
  std::mutex structure_mutex_;   // over which chunks there are; never waited for by readers
  mutable RwLock mapping_lock_;  // exclusive where a mapping goes away or moves

  bool open_ = false;
  std::uint64_t open_start_ = 0;
  std::uint64_t complete_ = 0;  // of the writer: complete episodes
  std::uint64_t ready_ = 0;     // steps below can be written at once
  std::uint64_t cared_ = 0;     // rows that take_care has seen
  std::uint64_t due_ = 0;       // the row at which it has something to do again
  Snapshot written_;            // what is on the disk; of the thread that flushes
  Caretaker caretaker_;         // the last member: its thread uses all others
};

}  // namespace sharpwave
