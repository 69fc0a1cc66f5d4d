#include "core/learn/team.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/thread_pool.hpp"

namespace sharpwave {
namespace {

constexpr std::uint64_t kOneLoop = std::uint64_t{1} << 32;

// Waits a moment; whoever waits long lets others have the core.
class Patience {
 public:
  void wait() {
    if (++waits_ > kMost) {
      std::this_thread::yield();
    } else {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  }

 private:
  static constexpr int kMost = 500;
  int waits_ = 0;
};

}  // namespace

void Team::lead(std::size_t threads, const std::function<void(Team&)>& body) {
  Team team;
  threads = std::min(threads, ThreadPool::cores());  // who waits without sleeping needs a core
  if (threads <= 1) return body(team);
  team.size_ = threads;
  std::exception_ptr error;
  // Tasks begin in their order, so that nobody waits for a leader who does not come.
  ThreadPool::shared().run(threads, threads, [&](std::size_t i) {
    if (i > 0) return team.help();
    try {
      body(team);
    } catch (...) {
      error = std::current_exception();
    }
    team.is_over_.store(true);
  });
  if (error) std::rethrow_exception(error);
}

void Team::run(std::size_t n, const std::function<void(std::size_t)>& task) {
  if (size_ == 1 || n <= 1) {
    for (std::size_t i = 0; i < n; ++i) task(i);
    return;
  }
  task_ = &task;
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t loop = left_.load(std::memory_order_relaxed) / kOneLoop + 1;
  left_.store(loop * kOneLoop + n, std::memory_order_release);
  while (do_one_task()) {
  }
  for (Patience patience; done_.load(std::memory_order_acquire) < n;) patience.wait();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::help() {
  Patience patience;
  while (!is_over_.load(std::memory_order_relaxed)) {
    if (do_one_task()) {
      patience = {};
    } else {
      patience.wait();
    }
  }
}

bool Team::do_one_task() {
  std::uint64_t left = left_.load(std::memory_order_acquire);
  do {
    if (left % kOneLoop == 0) return false;
    // The number of the loop is part of it: a task of an earlier loop cannot be taken by mistake.
  } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire));
  try {
    (*task_)(left % kOneLoop - 1);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

}  // namespace sharpwave
