#include "core/disk/writer_lock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>

#include "core/disk/process.hpp"

namespace sharpwave {
namespace {

// The lock of the system belongs to the process, so two writers within one must be told apart here.
// Closing any descriptor of the file would give the lock up: nothing else in this process may open
// it while it is held.
std::mutex held_mutex;
std::set<std::string>& held() {
  static std::set<std::string> keys;
  return keys;
}
unsigned long held_generation = 0;

// With held_mutex locked: a forked child holds nothing.
std::set<std::string>& held_here() {
  if (held_generation != process_generation()) {
    held().clear();
    held_generation = process_generation();
  }
  return held();
}

std::string key_of(const struct stat& status) {
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

std::string key_of(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? key_of(status) : std::string();
}

std::string key_of(int descriptor) {
  struct stat status{};
  return ::fstat(descriptor, &status) == 0 ? key_of(status) : std::string();
}

struct flock whole_file(short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

long owner_of(int descriptor) {
  struct flock lock = whole_file(F_WRLCK);
  if (::fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid;
}

File open_lock(const std::string& path) {
  try {
    return File(path, Access::write);
  } catch (const IoError& error) {
    if (error.code != ENOENT) throw;
  }
  try {
    return File::create(path);
  } catch (const IoError& error) {
    if (error.code != EEXIST) throw;
    return File(path, Access::write);
  }
}

std::string describe(long owner) {
  if (owner == ::getpid()) return "this process writes to it already";
  return owner > 0 ? "process " + std::to_string(owner) + " writes to it"
                   : std::string("another process writes to it");
}

}  // namespace

LockedError::LockedError(const std::string& path, long holder)
    : IoError(describe(holder) + "; there can be one writer at a time", path), owner(holder) {}

WriterLock::WriterLock(const std::string& path) : generation_(process_generation()) {
  const std::lock_guard<std::mutex> guard(held_mutex);
  const std::string present = key_of(path);
  if (!present.empty() && held_here().count(present) > 0) throw LockedError(path, ::getpid());
  do {  // again if someone removed the file between opening and locking it
    file_ = open_lock(path);
    struct flock lock = whole_file(F_WRLCK);
    if (::fcntl(file_.descriptor(), F_SETLK, &lock) != 0) {
      if (errno != EACCES && errno != EAGAIN) throw IoError("cannot lock", path, errno);
      throw LockedError(path, owner_of(file_.descriptor()));
    }
    key_ = key_of(file_.descriptor());
  } while (key_ != key_of(path));
  held_here().insert(key_);
}

WriterLock::~WriterLock() {
  const std::lock_guard<std::mutex> guard(held_mutex);
  if (is_mine()) held_here().erase(key_);
  file_ = File();
}

bool WriterLock::is_mine() const { return generation_ == process_generation(); }

long WriterLock::owner(const std::string& path) {
  const std::lock_guard<std::mutex> guard(held_mutex);
  const std::string key = key_of(path);
  if (key.empty()) return 0;
  if (held_here().count(key) > 0) return ::getpid();
  const File file(path, Access::read);
  return owner_of(file.descriptor());
}

}  // namespace sharpwave
