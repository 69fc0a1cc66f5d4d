#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "check.hpp"
#include "core/disk/writer_lock.hpp"
#include "test_folder.hpp"

using namespace sharpwave;

namespace {

void holds_within_the_process(const std::string& path) {
  CHECK(WriterLock::owner(path) == 0);
  auto lock = std::make_unique<WriterLock>(path);
  CHECK(lock->is_mine());
  CHECK(WriterLock::owner(path) == ::getpid());
  CHECK_THROWS(LockedError, WriterLock(path));
  CHECK(WriterLock::owner(path) == ::getpid());  // a refused writer must not give the lock up
  lock.reset();
  CHECK(WriterLock::owner(path) == 0);
  const WriterLock again(path);
}

// A child takes the lock and is killed: the lock is free, and named its owner before.
void is_let_go_when_the_owner_is_killed(const std::string& path) {
  int ready[2];
  CHECK(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const WriterLock lock(path);
    CHECK(::write(ready[1], "x", 1) == 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  CHECK(WriterLock::owner(path) == child);
  try {
    const WriterLock lock(path);
    CHECK(false);
  } catch (const LockedError& error) {
    CHECK(error.owner == child);
    CHECK(std::string(error.what()).find(std::to_string(child)) != std::string::npos);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const WriterLock lock(path);
}

void is_not_inherited(const std::string& path) {
  auto lock = std::make_unique<WriterLock>(path);
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = !lock->is_mine() && WriterLock::owner(path) == ::getppid();
    try {
      const WriterLock second(path);
      right = false;
    } catch (const LockedError&) {
    }
    lock.reset();  // must not free the parent's
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(lock->is_mine() && WriterLock::owner(path) == ::getpid());
}

}  // namespace

int main() {
  const TestFolder folder;
  holds_within_the_process(folder / "lock");
  is_let_go_when_the_owner_is_killed(folder / "lock");
  is_not_inherited(folder / "lock");
  return 0;
}
