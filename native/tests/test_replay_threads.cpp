// Writers, readers and updaters on one buffer, with its locks taken as the bindings take them; for
// ThreadSanitizer, and for torn rows.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/replay.hpp"
#include "tests/check.hpp"
#include "tests/replay_folders.hpp"
#include "tests/steps.hpp"

namespace {

using namespace sharpwave;

constexpr std::uint32_t kThreads = 4;
constexpr int kPushes = 4000;
constexpr int kReads = 1500;
constexpr std::size_t kBatch = 16;

// As native/bind/locks.hpp: try first, wait when that fails; rows before the tree.
template <typename Body>
void with_locks(Replay* replay, bool exclusive, bool tree, Body&& body) {
  RwLock& rows = replay->rows_lock();
  bool held = exclusive ? rows.try_lock() : rows.try_lock_shared();
  if (held && tree && !replay->tree_mutex().try_lock()) {
    exclusive ? rows.unlock() : rows.unlock_shared();
    held = false;
  }
  if (!held) {
    exclusive ? rows.lock() : rows.lock_shared();
    if (tree) replay->tree_mutex().lock();
  }
  bool tree_held = tree;
  const auto unlock_tree = [&] {
    if (tree_held) replay->tree_mutex().unlock();
    tree_held = false;
  };
  body(unlock_tree);
  unlock_tree();
  exclusive ? rows.unlock() : rows.unlock_shared();
}

void check_rows(const StepBatch& batch) {
  for (std::size_t row = 0; row < kBatch; ++row) {
    const float number = batch.rewards[row];
    CHECK(batch.obs[2 * row] == number && batch.obs[2 * row + 1] == -number);
    CHECK(batch.next_obs[2 * row] == number + 1.0F);
    CHECK(batch.next_obs[2 * row + 1] == -(number + 1.0F));
  }
}

void write(Replay* replay, std::uint32_t thread) {
  const bool tracked = replay->streams().tracked();
  std::vector<Step> steps;
  const std::vector<std::uint32_t> streams(8, tracked ? thread : 0);
  for (int i = 0; i < kPushes; i += static_cast<int>(steps.size())) {
    steps.clear();
    for (int j = 0; j < 1 + i % 8; ++j) {
      const auto number = static_cast<float>(thread * 2 * kPushes) + static_cast<float>(i + j);
      steps.push_back(make_step(number, number + 1.0F, number, (i + j) % 50 == 49));
    }
    with_locks(replay, true, replay->priorities() != nullptr, [&](auto&&) {
      replay->push(steps.size(), StepSources(steps.data()).sources,
                   tracked ? streams.data() : nullptr, nullptr);
    });
  }
}

void read(Replay* replay, std::uint32_t thread) {
  const bool by_priority = replay->priorities() != nullptr;
  const Selector selector{by_priority ? Selector::Kind::priority : Selector::Kind::uniform, 0};
  StepBatch batch(kBatch);
  std::vector<Anchor> anchors;
  Slots slots;
  std::vector<float> priorities(kBatch);
  for (int i = 0; i < kReads; ++i) {
    if (replay->streams().live() < kBatch) {
      std::this_thread::yield();
      continue;
    }
    with_locks(replay, false, by_priority, [&](auto&& unlock_tree) {
      replay->draw(selector, View{}, replay->generator(std::nullopt), kBatch, &anchors);
      if (by_priority) replay->weights(anchors, batch.weights.data());
      unlock_tree();
      replay->read(View{}, anchors, &slots, batch.out);
    });
    check_rows(batch);
    if (!by_priority || i % 3 != 0) continue;
    for (std::size_t row = 0; row < kBatch; ++row) {
      priorities[row] = 0.1F + static_cast<float>((i + row + thread) % 7);
    }
    with_locks(replay, false, true, [&](auto&&) {
      replay->update_priorities(batch.ids.data(), priorities.data(), kBatch);
    });
  }
}

void writers_beside_readers(std::size_t n_streams, bool priorities, bool durable) {
  const TestFolder folder;
  ReplayOptions options = folder_options(folder / "a", n_streams, priorities, 256);
  options.folder->resident_bytes = 1;
  if (!durable) options.folder.reset();
  Replay replay(options);
  std::atomic<bool> stop{false};
  std::thread saver;
  if (durable) {
    saver = std::thread([&] {
      while (!stop) replay.flush();
    });
  }
  const float number = 0.0F;
  for (std::uint32_t i = 0; i < 2 * kBatch; ++i) {
    const Step step = make_step(number, number + 1.0F, number, true);
    const std::uint32_t stream = n_streams == 0 ? 0 : i % kThreads;
    replay.push(1, StepSources(&step).sources, &stream, nullptr);
  }
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back(write, &replay, i);
    threads.emplace_back(read, &replay, i);
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  if (durable) saver.join();
  CHECK(replay.counters().pushed() >= kThreads * kPushes);
  CHECK(replay.streams().live() <= 256);
  CHECK(replay.ids(View{}).size() == replay.streams().live());
}

// A waiting writer keeps new readers out, so that readers in turn cannot starve it.
void writers_are_not_starved() {
  RwLock lock;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) {
        lock.lock_shared();
        std::this_thread::yield();
        lock.unlock_shared();
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    lock.lock();
    CHECK(!lock.try_lock_shared() && !lock.try_lock());
    lock.unlock();
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(lock.try_lock_shared());
  CHECK(!lock.try_lock() && lock.try_lock_shared());
  lock.unlock_shared();
  lock.unlock_shared();
  CHECK(lock.try_lock());
  lock.unlock();
}

}  // namespace

int main() {
  for (const bool priorities : {false, true}) {
    for (const bool durable : {false, true}) {
      writers_beside_readers(0, priorities, durable);
      writers_beside_readers(kThreads, priorities, durable);
    }
  }
  writers_are_not_starved();
}
