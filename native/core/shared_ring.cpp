#include "core/shared_ring.hpp"

#include <atomic>
#include <new>
#include <stdexcept>

#include "core/robust_mutex.hpp"

namespace sharpwave {
namespace {

constexpr std::uint64_t kMagic = 0x73772d72696e6731;  // "sw-ring1"

// Nothing before moves behind it, and nothing after before it.
void fence() {
#ifdef __SANITIZE_THREAD__  // which knows no fences, and no other processes
  static std::atomic<int> anything;
  anything.fetch_add(1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

struct SharedRing::Head {
  std::atomic<std::uint64_t> magic;
  std::int64_t capacity;
  std::atomic<std::int64_t> begun;  // steps whose slots somebody has touched
  std::atomic<std::int64_t> done;   // steps that are whole
  std::atomic<std::int64_t> floor;  // steps before were cleared
  std::atomic<std::int64_t> tickets;
  RobustMutex mutex;
};

SharedRing::SharedRing(std::byte* memory) : head_(reinterpret_cast<Head*>(memory)) {
  static_assert(sizeof(Head) <= kBytes);
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);
  if (head_->magic.load(std::memory_order_acquire) != kMagic) {
    throw std::invalid_argument("memory must hold the head of a shared ring");
  }
}

void SharedRing::create(std::byte* memory, std::int64_t capacity) {
  if (capacity < 1) throw std::invalid_argument("capacity must be at least 1");
  Head* head = new (memory) Head{};
  head->capacity = capacity;
  head->mutex.create();
  head->magic.store(kMagic, std::memory_order_release);
}

// The counters tell which slot a dead writer may have torn, so there is nothing to repair.
bool SharedRing::lock(int milliseconds) { return head_->mutex.lock(milliseconds); }

std::int64_t SharedRing::begin() {
  const std::int64_t step = head_->done.load(std::memory_order_relaxed);
  head_->begun.store(step + 1, std::memory_order_relaxed);
  fence();  // before any byte of the slot
  return step;
}

void SharedRing::finish() {
  fence();  // after every byte of the slot
  head_->done.store(head_->begun.load(std::memory_order_relaxed), std::memory_order_release);
}

void SharedRing::clear() {
  head_->floor.store(head_->done.load(std::memory_order_relaxed), std::memory_order_release);
}

void SharedRing::unlock() { head_->mutex.unlock(); }

SharedRing::Range SharedRing::range() const {
  fence();  // after the rows that were read before
  const std::int64_t end = head_->done.load(std::memory_order_acquire);
  const std::int64_t begun = head_->begun.load(std::memory_order_acquire);
  std::int64_t first = begun - head_->capacity;
  const std::int64_t floor = head_->floor.load(std::memory_order_acquire);
  if (first < floor) first = floor;
  fence();  // before the rows that are read next
  return {first, end > first ? end : first};
}

std::int64_t SharedRing::count() const {
  const std::int64_t floor = head_->floor.load(std::memory_order_acquire);
  const std::int64_t steps = head_->done.load(std::memory_order_acquire) - floor;
  return steps < head_->capacity ? steps : head_->capacity;
}

std::int64_t SharedRing::next_ticket() { return head_->tickets.fetch_add(1); }

}  // namespace sharpwave
