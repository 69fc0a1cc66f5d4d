#include "core/disk/caretaker.hpp"

#include <utility>

#include "core/disk/process.hpp"

namespace sharpwave {

Caretaker::~Caretaker() {
  if (!thread_.joinable()) return;
  if (generation_ != process_generation()) {  // the thread stayed in the parent
    thread_.detach();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Caretaker::post(std::function<void()> work) {
  if (thread_.joinable() && generation_ != process_generation()) {
    work();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    if (!thread_.joinable()) {
      generation_ = process_generation();
      thread_ = std::thread([this] { run(); });
    }
  }
  wake_.notify_one();
}

void Caretaker::drain() {
  if (!thread_.joinable() || generation_ != process_generation()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Caretaker::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    if (queue_.empty()) idle_.notify_all();
  }
}

}  // namespace sharpwave
