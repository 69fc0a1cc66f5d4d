// A thread that collects rollouts ahead of whoever learns from them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/collect/rollouts.hpp"

namespace sharpwave {

struct Weights {
  std::vector<float> parameters;
  std::uint64_t version;
  ValueScale scale = {};

  ActingWeights acting() const { return {parameters.data(), scale}; }
};

// Rollouts wait in a queue, oldest first; the thread rests while it is full. With a capacity of 0
// only what was asked for is collected: by request(), with the weights of that moment, or else by
// receive() in the caller's thread, with the weights of then. So which weights a rollout has does
// not depend on who is faster.
//
// Any thread may call anything. Whatever happens in the thread reaches the caller of receive().
// After a fork the child has no thread: there stop() does nothing, and all else throws.
class Collector {
 public:
  // `mutex` is held while the environments are stepped.
  Collector(std::unique_ptr<Rollouts> rollouts, std::mutex* mutex, std::vector<float> parameters,
            std::size_t capacity, const ValueScale& scale = {});
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // The weights of rollouts that begin from now on; their version. The caller has checked them.
  std::uint64_t set_weights(std::vector<float> parameters, const ValueScale& scale = {});
  std::shared_ptr<const Weights> weights() const;

  // Rollouts that wait.
  std::size_t size() const;
  // Of the next rollout to begin, or to be begun with: waits for one that is under way.
  std::uint64_t count() const;
  void set_count(std::uint64_t count);

  // Begins one more rollout (capacity 0 alone).
  void request();
  // The oldest rollout, or null if there is none after `patience`. Throws what the thread threw,
  // and std::runtime_error where no more will come.
  std::unique_ptr<CollectedRollout> receive(std::chrono::milliseconds patience);
  std::unique_ptr<CollectedRollout> try_receive();

  // Ends the thread, in the midst of a rollout too. Rollouts that wait can still be received.
  void stop();
  bool is_stopped() const;

 private:
  // On the heap, and left there in a forked process, where its locks may be held by nobody.
  struct Shared {
    std::unique_ptr<Rollouts> rollouts;
    std::mutex* env_mutex;
    std::size_t capacity;
    std::atomic<bool> stops = false;

    std::mutex mutex;
    std::condition_variable has_work, has_rollout;
    std::shared_ptr<const Weights> weights;
    std::deque<std::shared_ptr<const Weights>> requests;
    std::deque<std::unique_ptr<CollectedRollout>> ready;
    bool is_busy = false;  // a rollout is under way
    std::exception_ptr error;
    std::thread thread;

    bool has_room() const { return ready.size() < capacity; }
    bool awaits_nothing() const { return requests.empty() && ready.empty() && !is_busy; }
    void work();
    void collect(const Weights& weights, std::unique_lock<std::mutex>* lock);
    std::unique_ptr<CollectedRollout> take();
  };

  Shared& shared() const;

  int process_;
  Shared* shared_;
};

}  // namespace sharpwave
