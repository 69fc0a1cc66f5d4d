// Threads that wait for work that can be cut into independent parts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sharpwave {

class ThreadPool {
 public:
  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of the process. A forked process gets a new one: the threads stayed behind.
  static ThreadPool& shared();

  // How many threads the cores of this process can run at a time.
  static std::size_t cores();

  // Calls task(0) to task(n - 1), which must not throw, on at most `threads` threads, the caller
  // among them, and waits for them. While another caller has the pool, or within a task, they are
  // called one after the other. Threads are made when they are first asked for.
  void run(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& task);

 private:
  void grow(std::size_t workers);
  void work();
  void do_tasks();

  std::atomic<bool> in_use_ = false;
  std::vector<std::thread> workers_;  // changed by the caller that has the pool
  std::mutex mutex_;
  std::condition_variable has_work_, is_done_;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::size_t n_tasks_ = 0;
  std::size_t wanted_ = 0;  // workers that may still join
  std::size_t busy_ = 0;
  bool stops_ = false;
  std::atomic<std::size_t> next_task_ = 0;
};

}  // namespace sharpwave
