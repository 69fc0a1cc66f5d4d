// A column on disk: rows of equal size in chunk files, mapped into one range of addresses.
//
// Rows are numbered for ever and written once, in order; old ones go away chunk by chunk. So
// nothing that was committed is ever written over, a reader that has a chunk mapped keeps its rows
// although the file is gone, and a crash can only cost rows that were not committed.
//
// Row r lies at base + (r mod ring_rows) * row_bytes. A chunk is a file <name>.<number>: the rows,
// then a trailer with their checksum. The range holds `max_chunks` chunks; before a chunk's place
// is needed again its older inhabitant must have been dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
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
  bool random = false;  // rows are read in no order: reading ahead would be in vain
  // Of the store: goes into the checksums of trailers together with the column's name, so that they
  // fit no other column and no other schema. 0 for stores of version 1, whose trailers fit any.
  std::uint32_t identity = 0;

  std::size_t chunk_bytes() const { return row_bytes * chunk_rows; }
  std::size_t ring_rows() const { return chunk_rows * max_chunks; }
  std::string path(std::uint64_t chunk) const;        // folder/name.000000000012
  std::string coded_path(std::uint64_t chunk) const;  // the same, compressed
  // The numbers of the chunk files in the folder, or of the compressed ones, ascending.
  std::vector<std::uint64_t> on_disk(bool coded = false) const;
  // Whether a chunk is there, coded or not.
  bool has_file(std::uint64_t chunk) const;
};

// The distance of rows of this size: large ones are rounded up a little, so that not too many of
// them are needed to fill whole pages.
std::size_t choose_row_bytes(std::size_t bytes);

// A chunk_rows for rows of this size of which there will be at most `max_rows`: whole pages, small
// enough that little space is lost, large enough that there are not too many files.
std::size_t choose_chunk_rows(std::size_t row_bytes, std::uint64_t max_rows);

struct ChunkCheck {
  enum class Verdict : std::uint8_t { good, unsealed, missing, truncated, corrupt };
  Verdict verdict = Verdict::good;
  std::uint64_t chunk = 0;
  std::uint64_t rows = 0;  // that the checksum covers
};

// What the commit state says about the rows of a column.
struct FlushedRows {
  std::uint64_t end = 0;     // rows below were sealed and brought to the disk
  bool rolled_back = false;  // the power was lost since: trailers may cover rows that went with it
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
  std::byte* row(std::uint64_t r) const { return base_ + (r % ring_rows_) * layout_.row_bytes; }

  // Tells chunks below which rows must have a trailer; before `open`.
  void set_flushed(FlushedRows flushed) { flushed_ = flushed; }
  FlushedRows flushed() const { return flushed_; }
  // Maps the chunks that hold rows [begin, end) and are not mapped yet; a writer goes on at `end`,
  // and has disk space for all of them. A missing or truncated chunk is listed in `damage` and must
  // not be touched, and so is one in which a writer cannot go on; without a list it throws IoError,
  // which names the file.
  void open(std::uint64_t begin, std::uint64_t end, std::vector<ChunkCheck>* damage = nullptr);

  // Writer. Makes sure that rows below `end` can be written; throws IoError, with what is there
  // unchanged, when the disk is full. Cheap when nothing is to do.
  void reserve(std::uint64_t end) {
    if (end > reserved_) reserve_more(end);
  }
  // Rows that can be written without a call to the system.
  std::uint64_t reserved() const { return reserved_; }
  // Does in another thread what `reserve` will need next: makes the file after the one that row
  // `end` - 1 is in. Errors are left for `reserve` to meet.
  void prepare(std::uint64_t end) noexcept;
  bool is_mapped(std::uint64_t chunk) const { return mapped_.count(chunk) > 0; }
  // A compressed chunk lies in another file, and its rows in memory that someone else fills.
  bool is_coded(std::uint64_t chunk) const { return coded_.count(chunk) > 0; }
  // Lets empty memory take the place of a chunk's rows.
  void hold_in_memory(std::uint64_t chunk);
  // Removes the chunks that hold only rows before `row`. With a list the files are left for the
  // caller to remove, which may take long.
  void drop_before(std::uint64_t row, std::vector<std::string>* files = nullptr);
  // Writes the trailers of chunks with rows in [begin, end): the checksum of their rows below
  // `end`. It goes on from the checksum that is there, so that damage to rows that it covers stays
  // damage; a trailer that is not valid is an IoError. `changed`: rows that a trailer covered have
  // been changed, and all of them are taken as they are.
  void seal(std::uint64_t begin, std::uint64_t end, bool changed = false);
  // Lets the trailer of a chunk cover no rows, since they are about to be written over.
  void mark_changed(std::uint64_t chunk);
  bool is_changed(std::uint64_t chunk) const;
  // Lets the trailer of a chunk cover no row from `end` on: they are about to be written. Returns
  // what is wrong with the chunk, in which case the trailer stays as evidence.
  ChunkCheck unseal(std::uint64_t end);
  // Waits until rows [begin, end) and their trailers are on the disk.
  void sync(std::uint64_t begin, std::uint64_t end);
  // Gives the disk space after row `end` back; `reserve` takes it again.
  void trim(std::uint64_t end);

  // Puts rows of zeros in the place of a chunk that is missing or truncated.
  void replace(std::uint64_t chunk);
  // Reads a chunk from its file and compares it with its trailer.
  ChunkCheck verify(std::uint64_t chunk) const;
  // How many rows of a chunk its trailer covers, without a look at them; 0 without a valid one.
  std::uint64_t sealed_rows(std::uint64_t chunk) const;
  std::vector<std::uint64_t> on_disk() const { return layout_.on_disk(); }
  // Bytes that the files take on the disk.
  std::uint64_t disk_bytes() const;

  // Has the system start to read rows.
  void will_need(std::uint64_t begin, std::uint64_t end) const;
  // Takes the pages of rows out of this process; their content stays.
  void release_pages(std::uint64_t begin, std::uint64_t end) const;

 private:
  std::byte* address(std::uint64_t chunk) const {
    return base_ + (chunk % layout_.max_chunks) * layout_.chunk_bytes();
  }
  void reserve_more(std::uint64_t end);
  // A file for the chunk, as large as it will be, with space for the trailer only.
  File make_file(std::uint64_t chunk) const;
  void map(const File& file, std::uint64_t chunk);
  // Rows of a chunk that must have a checksum.
  std::uint64_t rows_to_cover(std::uint64_t chunk) const;
  void add_mapped(std::uint64_t chunk);
  void advise(std::uint64_t begin, std::uint64_t end, int advice) const;

  ChunkLayout layout_;
  Access access_;
  std::size_t ring_rows_;
  AddressRange own_;
  std::byte* base_;
  std::set<std::uint64_t> mapped_;
  std::set<std::uint64_t> coded_;           // those of them that are compressed
  std::uint64_t reserved_ = 0;              // rows below have disk space and memory
  std::atomic<bool> files_are_new_{false};  // since the last sync: the folder must be synced too

  std::mutex prepare_mutex_;
  std::uint64_t prepared_ = 0;  // the chunk made ahead, + 1

  struct Sealed {  // the last trailer written, to go on from
    std::uint64_t chunk = 0;
    std::uint64_t rows = 0;
    std::uint32_t checksum = 0;
  };
  // What the trailer in a file says. Throws IoError for one that is not valid.
  Sealed read_sealed(const File& file, std::uint64_t chunk) const;
  Sealed sealed_;
  FlushedRows flushed_;
  std::uint32_t seed_;  // of the checksums of trailers
};

}  // namespace sharpwave
