// A thread for what nobody should wait for: making files ahead, sealing chunks, removing old ones.
#pragma once

#include <functional>

namespace sharpwave {

class Caretaker {
 public:
  Caretaker();
  // Finishes what was asked for.
  ~Caretaker();
  Caretaker(const Caretaker&) = delete;
  Caretaker& operator=(const Caretaker&) = delete;

  // Has the work done soon, in the order asked for. It must not throw. The thread starts with the
  // first work. Any thread may ask. In a forked child, which has no thread, the work is done at
  // once.
  void post(std::function<void()> work);
  // Waits until all that was asked for is done.
  void drain();

 private:
  struct Shared;  // what the thread uses, too

  Shared* shared_;
  unsigned long generation_;
};

}  // namespace sharpwave
