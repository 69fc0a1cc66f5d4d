#include "core/collect/collector.hpp"

#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace sharpwave {

Collector::Collector(std::unique_ptr<Rollouts> rollouts, std::mutex* mutex,
                     std::vector<float> parameters, std::size_t capacity, const ValueScale& scale)
    : process_(::getpid()), shared_(new Shared) {
  shared_->rollouts = std::move(rollouts);
  shared_->env_mutex = mutex;
  shared_->capacity = capacity;
  shared_->weights = std::make_shared<Weights>(Weights{std::move(parameters), 0, scale});
  try {
    if (capacity > 0) shared_->thread = std::thread([shared = shared_] { shared->work(); });
  } catch (...) {
    delete shared_;
    throw;
  }
}

Collector::~Collector() {
  if (process_ != ::getpid()) return;
  stop();
  delete shared_;
}

Collector::Shared& Collector::shared() const {
  if (process_ != ::getpid()) {
    throw std::runtime_error("the collector must be used in the process that made it");
  }
  return *shared_;
}

std::uint64_t Collector::set_weights(std::vector<float> parameters, const ValueScale& scale) {
  Shared& shared = this->shared();
  const std::lock_guard lock(shared.mutex);
  const std::uint64_t version = shared.weights->version + 1;
  shared.weights = std::make_shared<Weights>(Weights{std::move(parameters), version, scale});
  return version;
}

std::shared_ptr<const Weights> Collector::weights() const {
  Shared& shared = this->shared();
  const std::lock_guard lock(shared.mutex);
  return shared.weights;
}

std::size_t Collector::size() const {
  Shared& shared = this->shared();
  const std::lock_guard lock(shared.mutex);
  return shared.ready.size();
}

std::uint64_t Collector::count() const {
  Shared& shared = this->shared();
  std::unique_lock lock(shared.mutex);
  shared.has_rollout.wait(lock, [&] { return !shared.is_busy; });
  return shared.rollouts->count();
}

void Collector::set_count(std::uint64_t count) {
  Shared& shared = this->shared();
  std::unique_lock lock(shared.mutex);
  shared.has_rollout.wait(lock, [&] { return !shared.is_busy; });
  shared.rollouts->set_count(count);
}

void Collector::request() {
  Shared& shared = this->shared();
  const std::lock_guard lock(shared.mutex);
  if (shared.capacity > 0) throw std::runtime_error("rollouts are requested where capacity is 0");
  if (shared.stops) throw std::runtime_error("the collector is stopped");
  if (!shared.thread.joinable()) {
    shared.thread = std::thread([&shared] { shared.work(); });
  }
  shared.requests.push_back(shared.weights);
  shared.has_work.notify_one();
}

std::unique_ptr<CollectedRollout> Collector::receive(std::chrono::milliseconds patience) {
  Shared& shared = this->shared();
  std::unique_lock lock(shared.mutex);
  if (shared.capacity == 0 && !shared.stops && !shared.error && shared.awaits_nothing()) {
    const std::shared_ptr<const Weights> weights = shared.weights;
    shared.collect(*weights, &lock);
  }
  shared.has_rollout.wait_for(
      lock, patience, [&] { return !shared.ready.empty() || shared.error || shared.stops; });
  if (!shared.ready.empty()) return shared.take();
  if (shared.error) std::rethrow_exception(shared.error);
  if (shared.stops) throw std::runtime_error("the collector is stopped");
  return nullptr;
}

std::unique_ptr<CollectedRollout> Collector::try_receive() {
  Shared& shared = this->shared();
  const std::lock_guard lock(shared.mutex);
  if (!shared.ready.empty()) return shared.take();
  if (shared.error) std::rethrow_exception(shared.error);
  return nullptr;
}

void Collector::stop() {
  if (process_ != ::getpid()) return;
  Shared& shared = *shared_;
  std::thread thread;
  {
    const std::lock_guard lock(shared.mutex);
    shared.stops = true;
    thread = std::move(shared.thread);
    shared.has_work.notify_all();
    shared.has_rollout.notify_all();
  }
  if (thread.joinable()) thread.join();
}

bool Collector::is_stopped() const { return shared().stops; }

std::unique_ptr<CollectedRollout> Collector::Shared::take() {
  std::unique_ptr<CollectedRollout> rollout = std::move(ready.front());
  ready.pop_front();
  has_work.notify_one();
  return rollout;
}

void Collector::Shared::work() {
  std::unique_lock lock(mutex);
  for (;;) {
    has_work.wait(lock,
                  [this] { return stops || (!is_busy && (!requests.empty() || has_room())); });
    if (stops || error) return;
    std::shared_ptr<const Weights> now = weights;
    if (!requests.empty()) {
      now = std::move(requests.front());
      requests.pop_front();
    }
    collect(*now, &lock);
  }
}

void Collector::Shared::collect(const Weights& now, std::unique_lock<std::mutex>* lock) {
  is_busy = true;
  lock->unlock();
  std::unique_ptr<CollectedRollout> rollout;
  std::exception_ptr thrown;
  try {
    const std::lock_guard env_lock(*env_mutex);
    rollout = rollouts->collect(now.acting(), stops);
  } catch (...) {
    thrown = std::current_exception();
  }
  lock->lock();
  is_busy = false;
  if (thrown) error = thrown;
  if (rollout) {
    rollout->version = now.version;
    ready.push_back(std::move(rollout));
  }
  has_work.notify_one();
  has_rollout.notify_all();
}

}  // namespace sharpwave
