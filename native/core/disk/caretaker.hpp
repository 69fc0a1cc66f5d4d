// A thread for what nobody should wait for: making files ahead, sealing chunks, removing old ones.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sharpwave {

class Caretaker {
 public:
  Caretaker() = default;
  // Finishes what was asked for.
  ~Caretaker();
  Caretaker(const Caretaker&) = delete;
  Caretaker& operator=(const Caretaker&) = delete;

  // Has the work done soon, in the order asked for. It must not throw. The thread starts with the
  // first work. In a forked child, which has no thread, the work is done at once.
  void post(std::function<void()> work);
  // Waits until all that was asked for is done.
  void drain();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
  unsigned long generation_ = 0;
};

}  // namespace sharpwave
