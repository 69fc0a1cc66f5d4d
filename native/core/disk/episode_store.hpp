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
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/disk/caretaker.hpp"
#include "core/disk/commit_state.hpp"
#include "core/disk/disk_column.hpp"
#include "core/disk/episode_lanes.hpp"

namespace sharpwave {

// gone: not an episode any more, because its steps are lost or there never were any.
enum class EpisodeFlag : std::uint8_t { open = 0, complete = 1, aborted = 2, gone = 3 };

struct EpisodeOptions {
  std::string folder;
  std::vector<ColumnSpec> steps;     // one per field
  std::vector<ColumnSpec> episodes;  // one per field of episodes
  std::size_t index_chunk_rows = 0;  // of the column that says where the steps lie
  std::uint64_t max_episodes = 0;
  std::uint64_t max_timesteps = 0;
  bool circular = false;
  bool power = false;                                  // every commit waits for the disk
  std::size_t decoded_bytes = std::size_t{256} << 20;  // memory for decompressed rows
  std::uint32_t identity = 0;                          // of the store, for its checksums
};

struct EpisodeRow {
  std::uint64_t start;
  std::uint64_t word;  // length << 8 | flag

  std::uint64_t length() const { return word >> 8; }
  EpisodeFlag flag() const { return static_cast<EpisodeFlag>(word & 0xff); }
  // Whether all steps are among rows [front, top).
  bool lies_in(std::uint64_t front, std::uint64_t top) const {
    return start >= front && start <= top && length() <= top - start;
  }
};

// Rows to be written over: of a field of steps by row, of a field of episodes by id.
struct EpisodePatch {
  bool meta;
  std::size_t column;
  std::uint64_t first;
  std::size_t n;
  Source source;
};

// Chunks that are not what was written, and what was lost with them.
struct EpisodeDamage {
  std::vector<std::string> chunks;  // path: what is wrong
  std::vector<std::int64_t> ids;    // episodes
  std::uint64_t steps = 0;          // of these, where their number is known
};

struct EpisodeTable {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> starts;
  std::vector<std::int64_t> lengths;
  std::vector<std::uint8_t> flags;
};

// Rows that are compressed and must be put into memory before they can be read.
struct CodedBlock {
  static constexpr std::uint64_t kPresent = ~std::uint64_t{0};  // as `block`: the chunk must stay
  std::size_t column;
  std::uint64_t chunk;
  std::uint64_t block;
};

class EpisodeStore {
 public:
  static constexpr std::size_t kStateWords = 16;  // some are kept for what may come
  // The column that says where the steps of episodes lie.
  static constexpr std::size_t kIndexRowBytes = sizeof(EpisodeRow);

  // Opens a store. A writer, who must hold the folder's lock, marks an episode that a dead one left
  // open as aborted. `repair`: a writer drops the episodes that damaged chunks are part of, a
  // reader leaves them out; otherwise a chunk that is not there in full is an IoError, which names
  // it.
  EpisodeStore(EpisodeOptions options, Access access, bool repair = false);
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
  bool has_open() const { return open_ || lanes_ != nullptr; }
  std::uint64_t open_length() const { return open_ ? steps_top() - open_start_ : 0; }
  // Starts an episode with these values of the fields of episodes.
  void begin(const Source* meta);
  // Adds n steps to the open episode.
  void append(std::size_t n, const Source* steps);
  // Whether `append` of n steps to the open episode needs no call to the system.
  bool is_ready(std::size_t n) const {
    return open_ && steps_top() + n <= ready_ && !options_.power;
  }
  // Writes a field of the open episode anew.
  void set_meta(std::size_t column, const std::byte* value);
  // Ends the open episode or batch.
  void end(EpisodeFlag flag);
  // Starts n episodes side by side with n values of each field of episodes.
  void begin_lanes(std::size_t n, const Source* meta);
  std::size_t n_lanes() const { return lanes_ ? lanes_->size() : 0; }
  // Adds a step to those of them whose flag is not 0.
  void append_lanes(const Source* steps, const std::uint8_t* active);
  // Writes a field of all of them anew.
  void set_lanes_meta(std::size_t column, Source values);
  // Writes rows over that are part of finished episodes: all of them, whenever the process dies.
  void update(const std::vector<EpisodePatch>& patches);
  // Forgets everything.
  void clear();
  // Waits until all that was committed is on the disk.
  void flush();
  // Waits until nothing is going on in the background.
  void settle() { caretaker_.drain(); }
  // Starts, fills and ends an episode at once.
  void store_episode(std::size_t n, const Source* steps, const Source* meta);
  // Ends the open episode as aborted and flushes. Only reading goes on.
  void close();
  // `close`, unless an episode is open; returns whether it was done.
  bool close_if_idle();
  // Stops writing, for the folder is about to be deleted: nothing is brought to the disk any more.
  void abandon();

  // Reading, in any thread.

  // Compares all chunks with their checksums.
  EpisodeDamage verify() const;
  // What `repair` found.
  const EpisodeDamage& repaired() const { return repaired_; }

  // Shows what another process has committed since.
  void refresh();
  std::uint64_t steps_front() const { return visible_[kStepsFront].load(); }
  std::uint64_t steps_top() const { return visible_[kStepsTop].load(std::memory_order_acquire); }
  std::uint64_t count_complete() const;
  // Whether rows are moving right now, so that readers would have to wait.
  bool is_moving() const {
    if (!mapping_lock_.try_lock_shared()) return true;
    mapping_lock_.unlock_shared();
    return false;
  }
  // Finished episodes, oldest first; with `open` also the one that is being written, as far as it
  // is.
  EpisodeTable table(bool aborted, bool open = false) const;
  // Copies rows of fields. Row -1 gives zeros; throws std::out_of_range for one that is not there.
  // Returns the blocks that are not in memory, if there are any: nothing was copied then.
  std::vector<CodedBlock> gather(const std::int64_t* rows, std::size_t n,
                                 const std::size_t* columns, std::size_t n_columns,
                                 std::byte* const* out) const;
  // Copies [starts[i], starts[i] + lengths[i]) to a row of `width` steps, zeros behind; likewise.
  std::vector<CodedBlock> gather_ranges(const std::int64_t* starts, const std::int64_t* lengths,
                                        std::size_t n, std::size_t width,
                                        const std::size_t* columns, std::size_t n_columns,
                                        std::byte* const* out) const;
  // Takes decompressed rows, block after block. Rows that were wanted long ago make room.
  void install(const std::vector<CodedBlock>& blocks, const std::vector<const std::byte*>& rows,
               const std::vector<std::size_t>& bytes);
  // Of a writer: chunks of a field that are full, on the disk, and not compressed.
  std::vector<std::uint64_t> compressible(std::size_t column);
  // Of a writer: the compressed file of a chunk is there and takes the place of the other.
  void adopt_coded(std::size_t column, std::uint64_t chunk);
  // Copies a field of episodes by their ids.
  void gather_meta(const std::int64_t* ids, std::size_t n, std::size_t column,
                   std::byte* out) const;

 private:
  enum Word : std::size_t {
    kStepsFront,
    kStepsTop,
    kEpisodesFront,
    kEpisodesTop,
    kVisible,              // the words above are what readers see
    kFinished = kVisible,  // of copies: episodes below will not change
    kLanes,                // episodes side by side, 0 when there are none
    kLanesFirst,           // the id of the first of them
    kLaneSteps,            // rows of their steps
    kLanesClosing,         // 1 when they have come to their end
  };
  using Snapshot = std::vector<std::uint64_t>;  // the words of a state

  std::uint64_t visible(Word word) const { return visible_[word].load(std::memory_order_acquire); }
  void commit(Word word, std::uint64_t value);
  EpisodeRow* index_row(std::uint64_t episode) const;
  EpisodeRow read_row(std::uint64_t episode) const;
  bool is_lost(std::uint64_t episode) const;
  // Throws IoError for words that cannot be true (those of a dead writer have no checksum);
  // `repairing` takes them back.
  void check_words(bool repairing);
  void open_columns(bool repairing);
  void recover(bool repairing);
  void recover_lanes(bool repairing);
  // Applies the journal of a writer that died in `update`.
  void recover_update();
  // The rows that it speaks of, which lie in `text`; empty when there is none that is whole.
  std::vector<EpisodePatch> read_journal(std::vector<std::byte>* text) const;
  // Brings the checksum of a chunk up to date after rows below `sealed` were written over.
  static void seal_again(DiskColumn* column, std::uint64_t chunk, std::uint64_t sealed);
  // The chunks that patches touch, each once: (of episodes, column, chunk).
  using Touched = std::set<std::tuple<bool, std::size_t, std::uint64_t>>;
  Touched touched_by(const std::vector<EpisodePatch>& patches) const;
  DiskColumn& column_of(bool meta, std::size_t column) const {
    return *(meta ? episodes_ : steps_).at(column);
  }
  // Of a reader: whether an update is under way in a chunk, so that its checksum cannot fit.
  bool is_changing(std::size_t number, std::uint64_t chunk) const;
  void settle_tail() noexcept;
  void repair();
  using Damaged = std::vector<std::vector<ChunkCheck>>;  // by column: steps, then episodes
  Damaged find_damage() const;
  EpisodeDamage describe(const Damaged& damaged) const;
  template <typename Function>
  void each_column(Function&& function) const;  // function(column, front, top, number)
  void apply(const std::vector<EpisodePatch>& patches);
  std::unique_ptr<EpisodeLanes> make_lanes(std::size_t n, std::uint64_t rows,
                                           FlushedRows flushed) const;
  void end_lanes(EpisodeFlag flag);
  void check_no_open() const;
  static void set_word(EpisodeRow* row, std::uint64_t length, EpisodeFlag flag);
  void check_length(std::uint64_t length) const;
  void make_room(std::uint64_t steps, std::uint64_t episodes);
  void evict();
  void set_fronts(std::uint64_t episodes_front);
  // Asks the caretaker for what is due: new files ahead, full ones to the disk, old ones gone.
  void take_care();
  Snapshot snapshot() const;
  void write_through(const Snapshot& snapshot);
  void drop_old(const Snapshot& snapshot);
  void post_tidy();
  void tidy() noexcept;

  EpisodeOptions options_;
  std::atomic<Access> access_;
  unsigned long process_;  // that opened the store
  std::unique_ptr<CommitState> state_;
  std::vector<std::unique_ptr<DiskColumn>> steps_;
  std::vector<std::unique_ptr<DiskColumn>> episodes_;  // the last is the index
  std::atomic<std::uint64_t> visible_[kVisible] = {};

  std::mutex writer_mutex_;
  std::mutex structure_mutex_;   // over which chunks there are; never waited for by readers
  mutable RwLock mapping_lock_;  // exclusive where a mapping goes away or moves

  std::unique_ptr<EpisodeLanes> lanes_;
  EpisodeDamage repaired_;
  bool lenient_ = false;  // of a reader: goes on without what is damaged
  bool open_ = false;
  std::uint64_t open_start_ = 0;
  std::uint64_t complete_ = 0;  // of the writer: complete episodes
  std::uint64_t ready_ = 0;     // steps below can be written at once
  std::uint64_t cared_ = 0;     // rows that take_care has seen
  std::uint64_t due_ = 0;       // the row at which it has something to do again
  std::mutex tidy_mutex_;
  Snapshot to_tidy_;     // what the caretaker has been asked to bring to the disk
  Snapshot written_;     // what is on the disk; of the thread that flushes
  Caretaker caretaker_;  // the last member: its thread uses all others
};

}  // namespace sharpwave
