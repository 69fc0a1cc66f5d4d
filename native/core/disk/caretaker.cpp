#include "core/disk/caretaker.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "core/disk/process.hpp"

namespace sharpwave {

struct Caretaker::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable idle;
  std::deque<std::function<void()>> queue;
  bool busy = false;
  bool stop = false;
  std::thread thread;

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      wake.wait(lock, [this] { return stop || !queue.empty(); });
      if (queue.empty()) return;
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      work();
      lock.lock();
      busy = false;
      if (queue.empty()) idle.notify_all();
    }
  }
};

Caretaker::Caretaker() : shared_(new Shared), generation_(process_generation()) {}

Caretaker::~Caretaker() {
  // A forked child has a copy of what the thread waits on, but not the thread: destroying it would
  // wait for ever.
  if (generation_ != process_generation()) return;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->wake.notify_one();
  if (shared_->thread.joinable()) shared_->thread.join();
  delete shared_;
}

void Caretaker::post(std::function<void()> work) {
  if (generation_ != process_generation()) {
    work();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->queue.push_back(std::move(work));
    if (!shared_->thread.joinable()) {
      shared_->thread = std::thread([shared = shared_] { shared->run(); });
    }
  }
  shared_->wake.notify_one();
}

void Caretaker::drain() {
  if (generation_ != process_generation()) return;
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->idle.wait(lock, [this] { return shared_->queue.empty() && !shared_->busy; });
}

}  // namespace sharpwave
