#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/thread_pool.hpp"

namespace {

using sharpwave::ThreadPool;

void every_task_runs_once() {
  ThreadPool pool;
  for (const std::size_t threads : {1, 2, 4, 9}) {
    for (const std::size_t n : {0, 1, 2, 3, 100}) {
      for (int again = 0; again < 20; ++again) {
        std::vector<int> calls(n);
        pool.run(n, threads, [&](std::size_t i) { ++calls[i]; });
        for (const int count : calls) CHECK(count == 1);
      }
    }
  }
}

void a_task_may_run_tasks() {
  ThreadPool pool;
  std::atomic<int> calls = 0;
  pool.run(8, 4, [&](std::size_t) { pool.run(8, 4, [&](std::size_t) { ++calls; }); });
  CHECK(calls == 64);
}

void callers_do_not_wait_for_each_other() {
  std::atomic<int> calls = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int again = 0; again < 200; ++again) {
        ThreadPool::shared().run(5, 3, [&](std::size_t) { ++calls; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(calls == 4 * 200 * 5);
}

[[maybe_unused]] void a_forked_process_has_threads_of_its_own() {
  ThreadPool::shared().run(4, 2, [](std::size_t) {});
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    std::atomic<int> calls = 0;
    for (int again = 0; again < 50; ++again) {
      ThreadPool::shared().run(4, 2, [&](std::size_t) { ++calls; });
    }
    ::_exit(calls == 200 ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
  every_task_runs_once();
  a_task_may_run_tasks();
  callers_do_not_wait_for_each_other();
#ifndef __SANITIZE_THREAD__  // which does not follow threads into a forked process
  a_forked_process_has_threads_of_its_own();
#endif
}
