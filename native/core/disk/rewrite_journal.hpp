// What is about to be written over the rows of a replay folder, so that all of it is or nothing
// when the process dies in the middle, and so that readers beside it know when rows change.
//
// A file that is mapped: a page with counters, then the new values. The counter `begun` goes up
// when they are whole, and `done` when the rows have them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/disk/io.hpp"

namespace sharpwave {

// New bytes of a row.
struct RowPatch {
  std::uint32_t stream = 0;
  std::uint32_t bytes = 0;
  std::uint64_t row = 0;
  std::uint64_t offset = 0;  // in the row
  const std::byte* data = nullptr;
};

class RewriteJournal {
 public:
  RewriteJournal(std::string path, Access access) : path_(std::move(path)), access_(access) {}

  // Writer. Throws IoError, with nothing changed, when there is no room.
  void begin(const std::vector<RowPatch>& patches);
  // Does nothing where nothing was begun.
  void end();
  // What a writer that died had begun, with the bytes in this journal's memory.
  std::vector<RowPatch> unfinished();

  // Reader. Waits while rows change, but not for a writer that is gone; how many rewrites there
  // were.
  std::uint64_t settled();
  // Whether rows that were read since are whole.
  bool is_settled(std::uint64_t count);

 private:
  struct Head {
    char magic[8];
    std::atomic<std::uint64_t> begun;
    std::atomic<std::uint64_t> done;
    std::atomic<std::uint64_t> patches;
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::uint64_t> checksum;  // of what is begun
  };
  Head* head() const { return reinterpret_cast<Head*>(range_.data()); }
  // False where there is no file.
  bool open();
  void map(std::size_t bytes);
  void make_room(std::size_t bytes);

  std::string path_;
  Access access_;
  std::mutex opening_;  // readers are many
  std::atomic<bool> is_open_{false};
  File file_;
  AddressRange range_;
};

}  // namespace sharpwave
