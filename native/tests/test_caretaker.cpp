#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "check.hpp"
#include "core/disk/caretaker.hpp"

using namespace sharpwave;

namespace {

void work_is_done_in_order() {
  std::vector<int> done;
  Caretaker caretaker;
  caretaker.drain();
  for (int i = 0; i < 100; ++i) caretaker.post([&done, i] { done.push_back(i); });
  caretaker.drain();
  CHECK(done.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(done[static_cast<std::size_t>(i)] == i);
}

void the_end_waits_for_what_was_asked_for() {
  int done = 0;
  {
    Caretaker caretaker;
    for (int i = 0; i < 50; ++i) {
      caretaker.post([&done] {
        ::usleep(100);
        ++done;
      });
    }
  }
  CHECK(done == 50);
}

void a_forked_child_does_it_itself() {
  int done = 0;
  auto caretaker = std::make_unique<Caretaker>();
  caretaker->post([&done] { ++done; });
  caretaker->drain();
  const pid_t child = ::fork();
  if (child == 0) {
    caretaker->post([&done] { ++done; });
    caretaker->drain();
    caretaker.reset();  // must not wait for a thread that is not here
    ::_exit(done == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
  work_is_done_in_order();
  the_end_waits_for_what_was_asked_for();
  a_forked_child_does_it_itself();
  return 0;
}
