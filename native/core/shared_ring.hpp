// The head of a ring of steps in memory that several processes share: who may write, which steps
// are whole, and what a process that was killed in the middle of a write leaves behind.
//
// Steps are numbered from 0 and lie in slot (step mod capacity). A writer says which step it begins
// before it touches the slot, and that it is done after. Readers take no lock: they read the head,
// copy rows, read the head again, and drop the rows whose slots somebody began to write meanwhile.
// Whoever dies while writing leaves a step that is begun and not done, which nobody reads and the
// next writer writes again.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

class SharedRing {
 public:
  // Bytes of memory that the head needs, aligned to 64.
  static constexpr std::size_t kBytes = 256;

  struct Range {
    std::int64_t first;  // the oldest step that is whole
    std::int64_t end;    // one after the newest
  };

  // Over memory that `create` has prepared. Throws std::invalid_argument if it was not.
  explicit SharedRing(std::byte* memory);
  static void create(std::byte* memory, std::int64_t capacity);

  // Wait for the right to write, for so long. False when that time is over.
  bool lock(int milliseconds);
  // All below until `unlock` need the lock, and come from the thread that has it.
  std::int64_t begin();
  void finish();
  void clear();
  // Throws std::logic_error if this thread has no lock.
  void unlock();

  // The steps that were whole at some moment of the call.
  Range range() const;
  // The steps since `clear`, at most the capacity; one of them may be in the writing.
  std::int64_t count() const;
  // Counts up; no two callers get the same number.
  std::int64_t next_ticket();

 private:
  struct Head;
  Head* head_;
};

}  // namespace sharpwave
