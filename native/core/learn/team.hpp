// Threads that go through many short parallel loops together.
//
// Between two loops they wait without sleeping, since waking up takes longer than a loop.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>

namespace sharpwave {

class Team {
 public:
  // Runs `body` while other threads of the process wait to help in its loops, at most `threads` in
  // all with the caller's and one for each core. They help where they come in time; the caller does
  // what they leave.
  static void lead(std::size_t threads, const std::function<void(Team&)>& body);

  // How many threads there may be.
  std::size_t size() const { return size_; }

  // Calls task(0) to task(n - 1), in any order, and waits for them. The first exception of a task
  // is thrown when all are done.
  void run(std::size_t n, const std::function<void(std::size_t)>& task);

 private:
  Team() = default;
  void help();
  bool do_one_task();

  std::size_t size_ = 1;
  std::atomic<bool> is_over_ = false;
  std::atomic<std::uint64_t> left_ = 0;  // number of the loop, then of its tasks not yet begun
  std::atomic<std::size_t> done_ = 0;
  const std::function<void(std::size_t)>* task_ = nullptr;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace sharpwave
