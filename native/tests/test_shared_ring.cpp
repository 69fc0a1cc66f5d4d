#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/shared_ring.hpp"

using sharpwave::SharedRing;

namespace {

std::byte* shared_memory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return static_cast<std::byte*>(memory);
}

void steps_are_counted_and_the_oldest_are_overwritten() {
  std::byte* memory = shared_memory(SharedRing::kBytes);
  CHECK_THROWS(std::invalid_argument, SharedRing(memory));
  SharedRing::create(memory, 3);
  SharedRing ring(memory);
  for (std::int64_t step = 0; step < 5; ++step) {
    CHECK(ring.lock(1000));
    CHECK(ring.begin() == step);
    CHECK(ring.range().end == step);
    CHECK(ring.range().first == (step < 3 ? 0 : step - 2));
    ring.finish();
    ring.unlock();
    CHECK(ring.range().end == step + 1);
  }
  CHECK(ring.range().first == 2);
  CHECK(ring.count() == 3);
  ring.clear();
  CHECK(ring.count() == 0);
  CHECK(ring.range().first == 5 && ring.range().end == 5);
#ifndef __SANITIZE_THREAD__  // which reports it
  CHECK_THROWS(std::logic_error, ring.unlock());
#endif
  CHECK(ring.next_ticket() == 0 && ring.next_ticket() == 1);
}

#ifndef __SANITIZE_THREAD__  // which does not see that the lock of a dead process is taken over
void a_writer_that_is_killed_leaves_a_step_that_nobody_reads() {
  std::byte* memory = shared_memory(SharedRing::kBytes);
  SharedRing::create(memory, 3);
  SharedRing ring(memory);
  for (int step = 0; step < 4; ++step) {
    ring.lock(1000);
    ring.begin();
    ring.finish();
    ring.unlock();
  }
  const pid_t child = fork();
  if (child == 0) {
    ring.lock(1000);
    ring.begin();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(ring.range().first == 2 && ring.range().end == 4);
  CHECK(ring.lock(1000));
  CHECK(ring.begin() == 4);
  ring.finish();
  ring.unlock();
  CHECK(ring.range().first == 2 && ring.range().end == 5);
}

#endif

void one_writer_at_a_time() {
  std::byte* memory = shared_memory(SharedRing::kBytes);
  SharedRing::create(memory, 8);
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([memory] {
      SharedRing ring(memory);
      for (int step = 0; step < 1000; ++step) {
        while (!ring.lock(10)) {
        }
        ring.begin();
        ring.finish();
        ring.unlock();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(SharedRing(memory).range().end == 4000);
  SharedRing ring(memory);
  CHECK(ring.lock(1000));
  std::thread([&] { CHECK(!ring.lock(1)); }).join();
  ring.unlock();
}

}  // namespace

int main() {
  steps_are_counted_and_the_oldest_are_overwritten();
#ifndef __SANITIZE_THREAD__
  a_writer_that_is_killed_leaves_a_step_that_nobody_reads();
#endif
  one_writer_at_a_time();
  return 0;
}
