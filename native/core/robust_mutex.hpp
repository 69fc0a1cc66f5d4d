// A mutex in memory that several processes share, which a dead one does not keep.
//
// Where the system has no such mutex, `create` throws: nothing that shares memory for writing may
// begin there.
#pragma once

#include <pthread.h>

namespace sharpwave {

class RobustMutex {
 public:
  // Prepare it, once for all processes. Throws std::runtime_error where the system has none.
  void create();
  // Wait for it, for so long. False when that time is over.
  bool lock(int milliseconds);
  // Throws std::logic_error if this thread does not have it.
  void unlock();

 private:
  [[maybe_unused]] pthread_mutex_t mutex_;
};

}  // namespace sharpwave
