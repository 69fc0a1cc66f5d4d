// A column on disk: rows of equal size in chunk files, mapped into one range of addresses.
//
// Rows are numbered for ever and written once, in order; old ones go away chunk by chunk. So nothing
// that was committed is ever written over, a reader that has a chunk mapped keeps its rows although
// the file is gone, and a crash can only cost rows that were not committed.
//
// Row r lies at base + (r mod ring_rows) * row_bytes. A chunk is a file <name>.<number>: the rows,
// then a trailer with their checksum. The range holds `max_chunks` chunks; before a chunk's place is
// needed again its older inhabitant must have been dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/disk/io.hpp"

namespace sharpwave {

struct ChunkLayout {
  std::string folder;
  std::string name;
  std::size_t row_bytes = 0;
  std::size_t chunk_rows = 0;  // row_bytes * chunk_rows is a multiple of the page size
  std::size_t max_chunks = 0;

  std::size_t chunk_bytes() const { return row_bytes * chunk_rows; }
  std::size_t ring_rows() const { return chunk_rows * max_chunks; }
  std::string path(std::uint64_t chunk) const;  // folder/name.000000000012
};

// A chunk_rows for rows of this size of which there will be at most `max_rows`: whole pages, small
// enough that little space is lost, large enough that there are not too many files.
std::size_t choose_chunk_rows(std::size_t row_bytes, std::uint64_t max_rows);

struct ChunkCheck {
  enum class Verdict : std::uint8_t { good, unsealed, missing, truncated, corrupt };
  Verdict verdict = Verdict::good;
  std::uint64_t chunk = 0;
  std::uint64_t rows = 0;  // that the checksum covers
};

class Chunks {
 public:
  // `range` is where the rows go: layout.ring_rows() * row_bytes bytes, page-aligned, owned by the
  // caller; null to have an own one.
  Chunks(ChunkLayout layout, Access access, std::byte* range = nullptr);
  ~Chunks();
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  const ChunkLayout& layout() const { return layout_; }
  std::byte* base() const { return base_; }
  std::byte* row(std::uint64_t r) const {
    return base_ + (r % ring_rows_) * layout_.row_bytes;
  }

  // Maps the chunks that hold rows [begin, end); for a writer they must be there in full. Returns
  // the first row whose chunk is there and after which none is missing: `begin` when all is well,
  // `end` when the last chunk is missing. Never throws for a missing file.
  std::uint64_t open(std::uint64_t begin, std::uint64_t end);

  // Writer. Makes sure that rows below `end` can be written, the next chunk in order; throws IoError,
  // with nothing changed, when the disk is full. Cheap when nothing is to do.
  void reserve(std::uint64_t end) {
    if (end > reserved_) reserve_more(end);
  }
  // The same work ahead of time, in another thread: makes the file that `reserve` will need next.
  // Errors are left for `reserve` to meet.
  void prepare(std::uint64_t end) noexcept;
  // Removes the files of chunks that hold only rows before `row`, and their mappings.
  void drop_before(std::uint64_t row);
  // Writes the trailers of chunks with rows in [begin, end): the checksum of their rows below `end`.
  void seal(std::uint64_t begin, std::uint64_t end);
  // Waits until rows [begin, end) are on the disk.
  void sync(std::uint64_t begin, std::uint64_t end);
  // Gives disk space after row `end` back; `reserve` takes it again.
  void trim(std::uint64_t end);

  // Reads a chunk again and compares it with its trailer. `end` is the first row not committed.
  ChunkCheck verify(std::uint64_t chunk, std::uint64_t end) const;
  // The numbers of the chunk files in the folder, ascending.
  std::vector<std::uint64_t> on_disk() const;

  // Starts reading rows in the background of the system.
  void will_need(std::uint64_t begin, std::uint64_t end) const;
  // Takes the pages of rows out of this process; they stay in files.
  void release_pages(std::uint64_t begin, std::uint64_t end) const;

 private:
  void reserve_more(std::uint64_t end);
  File create_chunk(std::uint64_t chunk);
  std::byte* address(std::uint64_t chunk) const {
    return base_ + (chunk % layout_.max_chunks) * layout_.chunk_bytes();
  }
  void write_trailer(const File& file, std::uint64_t chunk, std::uint64_t rows);

  ChunkLayout layout_;
  Access access_;
  std::size_t ring_rows_;
  AddressRange own_;
  std::byte* base_;
  std::uint64_t reserved_ = 0;         // rows below may be written
  std::map<std::uint64_t, File> open_;  // mapped chunks; of a reader, those seen so far
  std::uint64_t prepared_ = 0;         // number of the chunk made ahead, + 1
  mutable std::mutex mutex_;           // over open_ and prepared_
};

}  // namespace sharpwave
