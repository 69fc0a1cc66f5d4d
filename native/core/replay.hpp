// A replay buffer: schema, store, streams, writer, priorities and the locks around them.
//
// Rows are guarded by a shared/exclusive lock, priorities by a mutex taken after it. The methods
// below expect their caller to hold what they name; the bindings decide when to wait and when to
// let go of the GIL.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/priorities.hpp"
#include "core/rng.hpp"
#include "core/rw_lock.hpp"
#include "core/schema.hpp"
#include "core/selector.hpp"
#include "core/row_store.hpp"
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
  std::size_t n_streams = 0;  // 0: rows in no order, without neighbours
  std::uint64_t seed = 0;
  bool oversample = false;  // a batch may be larger than the content
  std::optional<PriorityOptions> priorities;
};

struct ReplayCounters {
  std::atomic<std::uint64_t> pushed{0};
  std::atomic<std::uint64_t> sampled{0};
  std::atomic<std::uint64_t> sampled_age{0};  // summed over draws: slots the stream took since
  std::atomic<std::uint64_t> stale_updates{0};
  std::atomic<std::uint64_t> calls{0};  // draws without a seed of their own
};

class Replay {
 public:
  // Throws std::invalid_argument, or std::bad_alloc when there is not that much memory.
  explicit Replay(ReplayOptions options);

  const ReplayOptions& options() const { return options_; }
  const Schema& schema() const { return options_.schema; }
  RowStore& store() { return store_; }
  Streams& streams() { return streams_; }
  ReplayCounters& counters() { return counters_; }
  Priorities* priorities() { return priorities_ ? &*priorities_ : nullptr; }
  double beta() const { return beta_.load(std::memory_order_relaxed); }
  void set_beta(double beta) { beta_.store(beta, std::memory_order_relaxed); }

  RwLock& rows_lock() { return rows_lock_; }
  std::mutex& tree_mutex() { return tree_mutex_; }

  // With rows locked exclusively and the tree locked:

  // Pushes n rows; row i goes to streams[i], or to stream i % n_streams when null. `priorities` may
  // be null.
  void push(std::size_t n, const Source* sources, const std::uint32_t* streams,
            const float* priorities);
  void clear();

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

  // Whether a push to every stream drops its oldest slot.
  bool is_full() const;
  std::size_t bytes() const;
  // Estimated nanoseconds to read this many rows.
  double read_cost(std::size_t rows) const;

 private:
  void draw_uniform(const Selector& selector, const View& view, const Philox& generator,
                    std::size_t batch, std::vector<Anchor>* anchors);
  void draw_by_priority(const View& view, const Philox& generator, std::size_t batch,
                        std::vector<Anchor>* anchors);
  std::uint64_t floor_of_recent(std::uint32_t stream, std::uint64_t window) const;

  ReplayOptions options_;
  RowStore store_;
  Streams streams_;
  Writer writer_;
  std::optional<Priorities> priorities_;
  std::atomic<double> beta_{0.0};
  ReplayCounters counters_;
  RwLock rows_lock_;
  std::mutex tree_mutex_;
};

}  // namespace sharpwave
