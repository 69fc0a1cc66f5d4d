// A replay buffer: schema, store, streams, writer, priorities and the locks around them.
//
// Rows are guarded by a shared/exclusive lock, priorities by a mutex taken after it. The methods
// below expect their caller to hold what they name; the bindings decide when to wait and when to
// let go of the GIL.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/disk/replay_folder.hpp"
#include "core/fresh.hpp"
#include "core/priorities.hpp"
#include "core/rng.hpp"
#include "core/row_store.hpp"
#include "core/rw_lock.hpp"
#include "core/schema.hpp"
#include "core/selector.hpp"
#include "core/streams.hpp"
#include "core/view.hpp"
#include "core/writer.hpp"

namespace sharpwave {

struct PriorityOptions {
  PriorityKind kind = PriorityKind::proportional;
  double alpha = 0.6;
  double beta = 0.4;
  bool stratified = true;
  bool batch_norm = false;  // weights relative to the batch's maximum, not the buffer's
};

struct ReplayOptions {
  Schema schema;
  Layout layout = Layout::transition;
  std::size_t capacity = 0;
  std::size_t n_streams = 0;  // 0: rows in no order, without neighbors
  std::uint64_t seed = 0;
  bool oversample = false;  // a batch may be larger than the content
  std::optional<PriorityOptions> priorities;
  std::optional<FolderOptions> folder;  // where the rows live; without one, in memory
};

// The columns of the folder of such a buffer: row_bytes, chunk_rows and max_chunks.
FolderOptions choose_columns(const ReplayOptions& options);

class ReplayCounters {
 public:
  static constexpr std::size_t kCount = 5;

  std::atomic<std::uint64_t>& pushed() const { return words_[ReplayFolder::kPushed]; }
  std::atomic<std::uint64_t>& sampled() const { return words_[ReplayFolder::kSampled]; }
  // Summed over draws: slots the stream took since.
  std::atomic<std::uint64_t>& sampled_age() const { return words_[ReplayFolder::kSampledAge]; }
  std::atomic<std::uint64_t>& stale_updates() const { return words_[ReplayFolder::kStaleUpdates]; }
  // Draws without a seed of their own.
  std::atomic<std::uint64_t>& calls() const { return words_[ReplayFolder::kCalls]; }

  // From now on the counters are the words at `words`, in a folder.
  void move_to(std::atomic<std::uint64_t>* words) { words_ = words; }
  // From now on they are in memory, with the values that they have.
  void move_home();

 private:
  std::array<std::atomic<std::uint64_t>, kCount> own_{};
  std::atomic<std::uint64_t>* words_ = own_.data();
};

class Replay {
 public:
  // Throws std::invalid_argument, std::bad_alloc when there is not that much memory, or IoError.
  explicit Replay(ReplayOptions options);

  const ReplayOptions& options() const { return options_; }
  const Schema& schema() const { return options_.schema; }
  RowStore& store() { return store_; }
  Streams& streams() { return streams_; }
  ReplayCounters& counters() { return counters_; }
  Priorities* priorities() { return priorities_ ? &*priorities_ : nullptr; }
  FreshQueues& fresh() { return fresh_; }
  double beta() const { return beta_.load(std::memory_order_relaxed); }
  void set_beta(double beta);

  RwLock& rows_lock() { return rows_lock_; }
  std::mutex& tree_mutex() { return tree_mutex_; }

  // With rows locked exclusively and the tree locked:

  // Pushes n rows; row i goes to streams[i], or to stream i % n_streams when null. `priorities` may
  // be null.
  void push(std::size_t n, const Source* sources, const std::uint32_t* streams,
            const float* priorities);
  void clear();
  // Writes extra columns of n steps over: `fields` of the schema, row i of each in sources[field].
  // Of equal ids the last wins, and kNoStep is passed over. Ids overwritten since are dropped and
  // counted; returns how many. Throws std::out_of_range, before anything changed, for an id that
  // was never written.
  std::size_t rewrite(const std::uint64_t* ids, std::size_t n,
                      const std::vector<std::size_t>& fields, const Source* sources);

  // With rows locked shared, and the tree too for draws by priority and weights:

  // The generator for one call: of the given seed, or the buffer's next one.
  Philox generator(std::optional<std::uint64_t> seed);
  // Draws a batch. Throws std::invalid_argument when nothing can be drawn.
  void draw(const Selector& selector, const View& view, const Philox& generator, std::size_t batch,
            std::vector<Anchor>* anchors);
  // Importance weights of drawn steps.
  void weights(const std::vector<Anchor>& anchors, float* out);

  // With rows locked shared:

  void read(const View& view, const std::vector<Anchor>& anchors, Slots* slots,
            const BatchOut& out);
  // Anchors of ids. Throws std::out_of_range for ids that are not in the buffer.
  void find(const std::uint64_t* ids, std::size_t n, std::vector<Anchor>* anchors) const;
  // All ids in the buffer for which the view accepts the step, oldest first within a stream.
  std::vector<std::uint64_t> ids(const View& view) const;

  // With rows locked shared and the tree locked:

  // Priorities are finite and not negative. Ids overwritten since are dropped and counted; returns
  // how many. Throws std::out_of_range, before anything changed, for an id that was never written.
  std::size_t update_priorities(const std::uint64_t* ids, const float* priorities, std::size_t n);

  // Of a buffer in a folder:

  bool is_durable() const { return folder_ != nullptr; }
  bool is_closed() const { return folder_ && folder_->is_closed(); }
  // Throws when it is closed, and says why.
  void require_open() const {
    if (folder_) folder_->require_open();
  }
  // What was wrong with the folder and is left out now, and how many steps that cost.
  const std::vector<std::string>& damage() const { return damage_; }
  std::uint64_t lost_steps() const { return lost_steps_; }
  // Whether a writer committed more since the last `refresh`, or this is a fork that is yet to be
  // parted from its writer.
  bool is_stale() const { return folder_ && folder_is_ahead(); }
  // With rows locked exclusively and the tree locked: takes in what the writer committed.
  void refresh();
  // Waits until everything pushed is on the disk.
  void flush() { folder_->flush(); }
  // With rows locked exclusively and the tree locked: leaves the folder. The buffer is empty then.
  // Without `keep` the folder is about to be deleted. Later calls get `reason` as their error.
  void close(bool keep, const std::string& reason = "the buffer is closed");
  std::uint64_t disk_bytes() const { return folder_->disk_bytes(); }
  // Of the rows, at most in the process's memory.
  std::size_t resident_bytes() const { return folder_->residency().known_bytes(); }

  // Whether a push to every stream drops its oldest slot.
  bool is_full() const;
  std::size_t bytes() const;
  // Estimated nanoseconds to read this many rows.
  double read_cost(std::size_t rows) const;
  // With rows locked exclusively: whether a push has no need of the disk.
  bool has_room(std::size_t rows, const std::uint32_t* streams) const {
    return !folder_ || folder_has_room(rows, streams);
  }

 private:
  void count_pushed(std::size_t n);
  void push_rows(std::size_t begin, std::size_t end, const Source* sources,
                 const std::uint32_t* streams, const float* priorities);
  // Anchors of ids that are still there, and in `rows` which of the n they are; how many are not.
  std::size_t find_written(const std::uint64_t* ids, std::size_t n, std::vector<Anchor>* anchors,
                           std::vector<std::size_t>* rows) const;
  void push_unordered(std::size_t n, const Source* sources, const float* priorities);
  void remove_priorities(std::uint64_t begin, std::uint64_t end);
  // Fresh windows, as many as there are; the generator draws the rest.
  void draw_fresh(const Selector& selector, const View& view, const Philox& generator,
                  std::size_t batch, std::vector<Anchor>* anchors);
  void draw_kind(const Selector& selector, const View& view, const Philox& generator,
                 std::size_t batch, std::vector<Anchor>* anchors);
  void draw_uniform(const Selector& selector, const View& view, const Philox& generator,
                    std::size_t batch, std::vector<Anchor>* anchors);
  void draw_by_priority(const View& view, const Philox& generator, std::size_t batch,
                        std::vector<Anchor>* anchors);
  std::uint64_t floor_of_recent(std::uint32_t stream, std::uint64_t window) const;

  // Of a buffer in a folder, in replay_durable.cpp.
  // Whether a writer in another process may write over columns of committed steps.
  bool may_be_rewritten() const;
  void open_folder();
  void forget_unmarked();
  void renew_priorities();
  void push_durably(std::size_t n, const Source* sources, const std::uint32_t* streams,
                    const float* priorities);
  void rewrite_durably(const std::vector<Anchor>& anchors, const std::vector<std::size_t>& rows,
                       const std::vector<std::size_t>& fields, const Source* sources);
  bool folder_has_room(std::size_t rows, const std::uint32_t* streams) const;
  void mirror_marks(std::uint32_t stream, std::uint64_t old_top);
  // Commits a push of n steps to the streams that are in `touched_`.
  void commit_push(std::size_t n);
  void commit_clear();
  void commit_priorities();
  // Grows with everything that a writer commits.
  std::uint64_t folder_version() const;
  bool folder_is_ahead() const;
  void take_in();
  bool follow(std::uint32_t stream, bool new_priorities);
  std::uint64_t leave_out(std::uint32_t stream, const std::vector<ChunkCheck>& damage,
                          std::uint64_t floor);
  void read_marks(std::uint32_t stream, std::uint64_t begin);
  void mend_marks(Anchor anchor);
  void read_priorities(std::uint32_t stream, std::uint64_t begin);
  void cut_episode(std::uint32_t stream);
  // Calls visit(data, bytes) for the records that a batch reads.
  template <typename Visit>
  void visit_records(const View& view, const Slots& slots, Visit&& visit);
  void announce(const View& view, const Slots& slots);

  ReplayOptions options_;
  std::unique_ptr<ReplayFolder> folder_;
  RowStore store_;
  Streams streams_;
  Writer writer_;
  std::optional<Priorities> priorities_;
  FreshQueues fresh_;
  std::atomic<double> beta_{0.0};
  ReplayCounters counters_;
  RwLock rows_lock_;
  std::mutex tree_mutex_;
  std::vector<std::string> damage_;
  std::uint64_t lost_steps_ = 0;
  std::uint64_t lost_marks_ = 0;
  std::vector<std::uint64_t> left_out_;  // by stream: rows before it are damaged
  std::uint64_t updates_seen_ = 0;       // of priorities, by a writer
  std::atomic<std::uint64_t> version_seen_{0};
  std::atomic<bool> parted_{false};     // a fork that has taken its counters home
  std::vector<std::uint32_t> steps_;    // of a push, by stream
  std::vector<std::uint32_t> touched_;  // the streams that have some
  std::vector<ReplayFolder::Change> changes_;
  std::atomic<bool> pages_missed_{true};  // the last read found pages that were not in memory
};

}  // namespace sharpwave
