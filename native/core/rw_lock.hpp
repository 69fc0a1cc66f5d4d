// A small shared/exclusive lock: uncontended it costs one atomic exchange, and writers are not
// starved.
//
// Waiting yields, then sleeps: sections are microseconds long, but a save holds the rows for as
// long as it takes. A waiter never holds the GIL.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace sharpwave {

class RwLock {
 public:
  bool try_lock() {
    std::int32_t expected = 0;
    return state_.compare_exchange_strong(expected, kWriter, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() {
    writers_waiting_.fetch_add(1, std::memory_order_relaxed);
    for (int tries = 0; !try_lock(); ++tries) wait(tries);
    writers_waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unlock() { state_.store(0, std::memory_order_release); }

  bool try_lock_shared() {
    if (writers_waiting_.load(std::memory_order_relaxed) != 0) return false;
    std::int32_t readers = state_.load(std::memory_order_relaxed);
    while (readers >= 0) {
      if (state_.compare_exchange_weak(readers, readers + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  void lock_shared() {
    for (int tries = 0; !try_lock_shared(); ++tries) wait(tries);
  }
  void unlock_shared() { state_.fetch_sub(1, std::memory_order_release); }

 private:
  static void wait(int tries) {
    if (tries < 256) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  static constexpr std::int32_t kWriter = -1;
  std::atomic<std::int32_t> state_{0};
  std::atomic<std::int32_t> writers_waiting_{0};
};

}  // namespace sharpwave
