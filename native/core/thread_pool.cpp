#include "core/thread_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace sharpwave {

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  has_work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

ThreadPool& ThreadPool::shared() {
  struct Shared {
    ThreadPool pool;
    pid_t process = ::getpid();
  };
  // Never destroyed: its threads may wait until the process is gone. No lock either: one that
  // another thread held would stay locked in a forked process.
  static std::atomic<Shared*> current = nullptr;
  Shared* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->process == ::getpid()) return found->pool;
  auto* fresh = new Shared;
  if (current.compare_exchange_strong(found, fresh)) return fresh->pool;
  delete fresh;  // another thread was faster
  return found->pool;
}

std::size_t ThreadPool::cores() {
  static const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return cores;
}

void ThreadPool::run(std::size_t n, std::size_t threads,
                     const std::function<void(std::size_t)>& task) {
  const std::size_t helpers = std::min(threads, n);
  if (helpers <= 1 || in_use_.exchange(true)) {
    for (std::size_t i = 0; i < n; ++i) task(i);
    return;
  }
  grow(helpers - 1);
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    n_tasks_ = n;
    next_task_.store(0, std::memory_order_relaxed);
    wanted_ = std::min(helpers - 1, workers_.size());
  }
  if (helpers == 2) {
    has_work_.notify_one();
  } else {
    has_work_.notify_all();
  }
  do_tasks();
  {
    std::unique_lock lock(mutex_);
    wanted_ = 0;  // nothing is left for those who have not come
    is_done_.wait(lock, [this] { return busy_ == 0; });
  }
  in_use_.store(false);
}

void ThreadPool::grow(std::size_t workers) {
  try {
    while (workers_.size() < workers) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The process has as many threads as it may have: fewer do.
  }
}

void ThreadPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return stops_ || wanted_ > 0; });
    if (stops_) return;
    --wanted_;
    ++busy_;
    lock.unlock();
    do_tasks();
    lock.lock();
    if (--busy_ == 0) is_done_.notify_one();
  }
}

void ThreadPool::do_tasks() {
  for (std::size_t i = next_task_.fetch_add(1); i < n_tasks_; i = next_task_.fetch_add(1)) {
    (*task_)(i);
  }
}

}  // namespace sharpwave
