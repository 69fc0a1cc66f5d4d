// Runs work under a buffer's locks without ever waiting for one while holding the GIL.
#pragma once

#include <mutex>
#include <optional>

#include "bind/arrays.hpp"
#include "core/replay.hpp"

namespace sharpwave::bind {

enum class Rows { shared, exclusive };

class ReplayLocks {
 public:
  ReplayLocks(Replay* replay, Rows rows, bool tree) : replay_(replay), rows_(rows), tree_(tree) {}
  ~ReplayLocks() {
    if (tree_held_) unlock_tree();
    if (rows_held_) unlock_rows();
  }
  ReplayLocks(const ReplayLocks&) = delete;
  ReplayLocks& operator=(const ReplayLocks&) = delete;

  bool try_lock() {
    RwLock& lock = replay_->rows_lock();
    rows_held_ = rows_ == Rows::shared ? lock.try_lock_shared() : lock.try_lock();
    if (!rows_held_) return false;
    if (!tree_) return true;
    tree_held_ = replay_->tree_mutex().try_lock();
    if (!tree_held_) unlock_rows();
    return tree_held_;
  }
  void lock() {
    RwLock& lock = replay_->rows_lock();
    rows_ == Rows::shared ? lock.lock_shared() : lock.lock();
    rows_held_ = true;
    if (tree_) {
      replay_->tree_mutex().lock();
      tree_held_ = true;
    }
  }
  // The rest of the work takes long. The GIL comes back after the locks are let go.
  void release_gil() {
    if (!released_) released_.emplace();
  }
  // The rest of the work needs the rows alone.
  void unlock_tree() {
    if (tree_held_) replay_->tree_mutex().unlock();
    tree_held_ = false;
  }

 private:
  void unlock_rows() {
    rows_ == Rows::shared ? replay_->rows_lock().unlock_shared() : replay_->rows_lock().unlock();
    rows_held_ = false;
  }

  std::optional<ReleaseGil> released_;  // first, to be destroyed last
  Replay* replay_;
  Rows rows_;
  bool tree_;
  bool rows_held_ = false;
  bool tree_held_ = false;
};

// Calls body(locks). Short work on free locks keeps the GIL: letting it go costs more than it
// gives.
template <typename Body>
void with_locks(Replay* replay, Rows rows, bool tree, double work_ns, Body&& body) {
  if (work_ns < 20e3) {
    ReplayLocks locks(replay, rows, tree);
    if (locks.try_lock()) {
      replay->require_open();  // another thread may have closed it since the call began
      body(locks);
      return;
    }
  }
  ReplayLocks locks(replay, rows, tree);
  locks.release_gil();
  locks.lock();
  replay->require_open();
  body(locks);
}

// Takes in what a writer committed to the folder of a buffer since.
inline void catch_up(Replay* replay) {
  if (!replay->is_stale()) return;
  ReplayLocks locks(replay, Rows::exclusive, replay->priorities() != nullptr);
  locks.release_gil();
  locks.lock();
  replay->refresh();
}

}  // namespace sharpwave::bind
