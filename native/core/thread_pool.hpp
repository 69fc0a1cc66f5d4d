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
  // The caller of run() is one of the threads.
  explicit ThreadPool(std::size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool of the process, with a thread for each core that it may use. A forked process gets a
  // new one: the threads stayed behind.
  static ThreadPool& shared();

  std::size_t threads() const { return workers_.size() + 1; }

  // Calls task(0) to task(n - 1), which must not throw, on at most `threads` threads, and waits for
  // them. While another caller has the threads, or within a task, they are called one after the
  // other.
  void run(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& task);

 private:
  void work();
  void do_tasks();

  std::vector<std::thread> workers_;
  std::atomic<bool> in_use_ = false;
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
