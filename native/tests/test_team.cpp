// Loops of a team: every task once, in every number of threads, with errors and without.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/learn/team.hpp"

namespace {

using namespace sharpwave;

void test_every_task_runs_once_before_the_next_loop() {
  for (const std::size_t threads : {1, 2, 5}) {
    std::vector<int> counts(7);
    Team::lead(threads, [&](Team& team) {
      for (int loop = 0; loop < 2000; ++loop) {
        team.run(counts.size(), [&](std::size_t i) { ++counts[i]; });
        for (const int count : counts) CHECK(count == loop + 1);
      }
    });
  }
}

void test_no_tasks_are_no_work() {
  Team::lead(3, [](Team& team) {
    team.run(0, [](std::size_t) { CHECK(false); });
    int count = 0;
    team.run(1, [&](std::size_t) { ++count; });
    CHECK(count == 1);
  });
}

void test_an_exception_of_a_task_reaches_the_caller_when_all_are_done() {
  for (const std::size_t threads : {1, 4}) {
    std::atomic<int> count = 0;
    CHECK_THROWS(std::runtime_error, ([&] {
                   Team::lead(threads, [&](Team& team) {
                     team.run(8, [&](std::size_t i) {
                       if (i == 3) throw std::runtime_error("three");
                       ++count;
                     });
                   });
                   return 0;
                 }()));
    CHECK(threads == 1 || count == 7);
  }
  bool went_on = false;
  Team::lead(4, [&](Team& team) {
    try {
      team.run(8, [](std::size_t) { throw std::runtime_error("each"); });
    } catch (const std::runtime_error&) {
    }
    team.run(2, [&](std::size_t i) {
      if (i == 0) went_on = true;
    });
  });
  CHECK(went_on);
}

void test_teams_in_several_threads_do_not_disturb_each_other() {
  std::vector<std::thread> callers;
  std::atomic<int> total = 0;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      Team::lead(3, [&](Team& team) {
        for (int loop = 0; loop < 200; ++loop) team.run(4, [&](std::size_t) { ++total; });
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 4 * 200 * 4);
}

}  // namespace

int main() {
  test_every_task_runs_once_before_the_next_loop();
  test_no_tasks_are_no_work();
  test_an_exception_of_a_task_reaches_the_caller_when_all_are_done();
  test_teams_in_several_threads_do_not_disturb_each_other();
  return 0;
}
