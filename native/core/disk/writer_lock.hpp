// One writer at a time: a lock on a file that the system lets go of when its process ends, however
// it ends.
#pragma once

#include <string>

#include "core/disk/io.hpp"

namespace sharpwave {

// Another writer holds the folder.
struct LockedError : IoError {
  LockedError(const std::string& path, long owner);
  long owner;  // its process, 0 when unknown
};

class WriterLock {
 public:
  // Takes the lock on `path`, made if need be. Throws LockedError when someone has it, in this
  // process or in another.
  explicit WriterLock(const std::string& path);
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

  // False in a process that was forked from the one that took the lock: locks are not inherited.
  bool is_mine() const;
  // The process that holds the lock, 0 when nobody does. Never writes.
  static long owner(const std::string& path);

 private:
  File file_;
  std::string key_;
  unsigned long generation_;
};

}  // namespace sharpwave
