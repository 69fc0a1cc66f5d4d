// A column on disk whose range of addresses grows with it: the chunks know nothing of how much
// there will be.
//
// One thread writes; others read rows that were committed, under the store's lock over mappings.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/disk/chunks.hpp"
#include "core/rw_lock.hpp"
#include "core/writer.hpp"

namespace sharpwave {

struct ColumnSpec {
  std::string name;  // of its files
  std::size_t row_bytes = 0;
  std::size_t chunk_rows = 0;
  std::size_t block_rows = 0;  // of compressed chunks: rows that are decompressed together
};

class DiskColumn {
 public:
  // `identity` and `flushed`: see `ChunkLayout` and `FlushedRows`.
  DiskColumn(const std::string& folder, const ColumnSpec& spec, Access access,
             std::uint32_t identity = 0, FlushedRows flushed = {});

  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t chunk_rows() const { return chunk_rows_; }
  std::byte* row(std::uint64_t r) const { return chunks_->row(r); }
  const std::byte* base() const { return chunks_->base(); }
  std::size_t ring_rows() const { return ring_rows_; }

  // Maps rows [front, top); a writer goes on at `top`, and removes files that hold none of them.
  // Throws IoError for a chunk that is not there in full, or lists it in `damage`.
  void open(std::uint64_t front, std::uint64_t top, std::vector<ChunkCheck>* damage = nullptr);

  // Whether rows below `end` can be written without a call to the system.
  bool has_room(std::uint64_t end) const { return end <= chunks_->reserved(); }
  // Whether the range of addresses must grow before rows below `end` can be written.
  bool must_grow(std::uint64_t end) const { return end > front_chunk() * chunk_rows_ + ring_rows_; }
  // Moves to a larger range. Readers and all others who use the chunks must be kept away.
  void grow(std::uint64_t end);
  // Makes room for rows below `end`, which must fit the range.
  void reserve(std::uint64_t end) { chunks_->reserve(end); }
  // Whether some chunk holds only rows before `front`.
  bool has_old(std::uint64_t front) const { return front / chunk_rows_ > front_chunk(); }
  // Takes the mappings of chunks away that hold only rows before `front`, and lists their files.
  void drop_before(std::uint64_t front, std::vector<std::string>* files);

  // Copies n rows to row `first` and on.
  void write(std::uint64_t first, std::size_t n, Source source);
  // Copies rows [first, first + n) to `target`.
  void read(std::uint64_t first, std::size_t n, std::byte* target) const;

  // Full chunks may be compressed, and their rows come back into memory block by block.

  // Whether there are compressed chunks.
  bool is_coded() const { return block_rows_ > 0; }
  bool is_present(std::uint64_t r) const;
  std::uint64_t block_of(std::uint64_t r) const { return r % chunk_rows_ / block_rows_; }
  std::size_t block_rows() const { return block_rows_; }
  // Takes the rows of a block; throws when they are not as many as they should be.
  void install(std::uint64_t chunk, std::uint64_t block, const std::byte* rows, std::size_t bytes);
  // Goes over from a chunk's own file, which is left for the caller to remove, to the compressed
  // one.
  std::string adopt_coded(std::uint64_t chunk);
  // Gives the memory of the compressed chunk back that has had it longest and is not in `kept`;
  // false when there is none.
  bool forget_oldest(const std::vector<std::uint64_t>& kept);
  std::size_t decoded_bytes() const { return decoded_bytes_; }

  Chunks& chunks() { return *chunks_; }
  const Chunks& chunks() const { return *chunks_; }

 private:
  std::uint64_t front_chunk() const { return front_ / chunk_rows_; }
  std::unique_ptr<Chunks> make_chunks(std::size_t max_chunks) const;

  ChunkLayout layout_;
  Access access_;
  std::size_t row_bytes_;
  std::size_t chunk_rows_;
  std::size_t block_rows_;
  std::size_t ring_rows_ = 0;
  std::atomic<std::uint64_t> front_{0};  // chunks before this row's are gone
  std::uint64_t top_ = 0;                // of a reader: rows below are mapped
  std::unique_ptr<Chunks> chunks_;
  std::map<std::uint64_t, std::vector<bool>> present_;  // blocks in memory, by compressed chunk
  std::deque<std::uint64_t> decoded_;                   // the same chunks, the oldest first
  std::size_t decoded_bytes_ = 0;
};

}  // namespace sharpwave
