// The folder of a replay buffer: its rows in chunk files, one column per stream, and a mirror of
// what the buffer knows about them.
//
// A push writes its row, then the marks and the priority of its slot, and last the stream's `top`
// into the commit words. So whatever is found below `top` is whole: a buffer that is opened reads
// its tops, and the marks and priorities of the slots below them. Everything here is for one
// writer, whose caller holds the rows exclusively, or for readers, who never write.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/disk/caretaker.hpp"
#include "core/disk/chunks.hpp"
#include "core/disk/commit_state.hpp"
#include "core/disk/residency.hpp"
#include "core/disk/rewrite_journal.hpp"

namespace sharpwave {

struct FolderOptions {
  std::string path;
  Access access = Access::write;
  // The columns, as the header of the folder says.
  std::size_t row_bytes = 0;
  std::size_t chunk_rows = 0;
  std::size_t max_chunks = 0;
  bool power = false;              // a push is on the disk when it returns
  bool continue_episodes = false;  // the next pushes go on with the episodes that were open
  bool verify = false;             // compare all rows with their checksums
  bool repair = false;             // leave damaged rows out instead of refusing to open
  std::uint32_t identity = 0;      // of the store, for its checksums; 0 for version 1
  std::size_t hot_rows = 0;        // of a stream: the newest ones, whose pages are never released
  std::size_t resident_bytes = 0;  // pages kept in the process; 0 for all

  std::size_t slots() const { return chunk_rows * max_chunks; }
};

class ReplayFolder {
 public:
  // The commit words: these, then the top of every stream, then the row before which it was
  // cleared, and then, not in stores of version 1, the changes of the commit that is on its way
  // (how many commits and ends of them there were, how many changes, and each as word and value).
  enum Word : std::size_t {
    kPushed,
    kSampled,
    kSampledAge,
    kStaleUpdates,
    kCalls,
    kMaxPriority,  // as the bits of a double, like beta
    kBeta,
    kUpdates,             // how often priorities of committed rows were changed
    kPrioritiesChecksum,  // of a folder that nobody writes to; otherwise 0
    kTops
  };
  static std::size_t n_words(std::size_t n_streams, std::uint32_t identity) {
    const std::size_t words = kTops + 2 * n_streams;
    return identity == 0 ? words : words + 2 + 2 * (n_streams + 2);
  }

  struct Shape {
    std::size_t n_streams = 1;
    bool marks = false;       // slots have marks
    bool priorities = false;  // slots have priorities
    bool pending = false;     // the newest row of a stream may still change
  };

  // Opens the folder; for a writer, whose lock the caller holds, what is missing in a new one is
  // made. No rows are mapped yet.
  ReplayFolder(FolderOptions options, Shape shape);
  ~ReplayFolder();
  ReplayFolder(const ReplayFolder&) = delete;
  ReplayFolder& operator=(const ReplayFolder&) = delete;

  const FolderOptions& options() const { return options_; }
  std::byte* base() const { return range_.data(); }
  Residency& residency() { return residency_; }
  bool is_reader() const { return options_.access == Access::read; }
  bool is_closed() const { return closed_; }
  // Throws when it is closed, and says why.
  void require_open() const {
    if (closed_) throw std::invalid_argument(why_closed_);
  }
  // Whether this is the process that opened the folder, and not a fork of it.
  bool is_mine() const;
  // Throws unless rows may be written: not to a closed folder, a read-only one, or by a fork.
  void require_writer() const;

  std::atomic<std::uint64_t>* words() { return &state_.word(0); }
  // The value of a word as of the last commit.
  std::uint64_t get(std::size_t word) const {
    return log_ == 0 || !is_reader() ? state_.get(word) : read_committed(word);
  }
  std::uint64_t top(std::uint32_t stream) const { return get(kTops + stream); }
  // Rows before this one are gone for another reason than age.
  std::uint64_t cleared(std::uint32_t stream) const {
    return get(kTops + shape_.n_streams + stream);
  }
  double number(Word word) const;
  void set_number(Word word, double value);
  std::uint8_t* marks() const { return reinterpret_cast<std::uint8_t*>(marks_.range.data()); }
  float* priorities() const { return reinterpret_cast<float*>(priorities_.range.data()); }

  // Maps the rows [begin, end) of a stream and lets older ones go. Returns chunks that are not
  // there, or not whole, or, with `verify`, not what they were; a missing one is not mapped.
  std::vector<ChunkCheck> map_rows(std::uint32_t stream, std::uint64_t begin, std::uint64_t end,
                                   bool verify = false);
  // Seals and saves what a writer that died had not come to.
  void settle_tail() noexcept;
  // All rows are mapped: from now on there is something to save.
  void set_open() { open_ = true; }
  // The file of a chunk, with what is wrong with it.
  std::string describe(std::uint32_t stream, const ChunkCheck& check) const;
  // Marks or priorities were damaged, and are empty now that they are repaired.
  bool lost_marks() const { return marks_.lost; }
  bool lost_priorities() const { return priorities_.lost; }
  std::string path_of(const char* name) const { return options_.path + "/" + name; }
  // The words are those of the last flush: the power was lost since.
  bool rolled_back() const { return state_.rolled_back(); }

  // Writer. Makes room for rows below `end`; those before `oldest` may go. Throws IoError, with
  // nothing changed, when the disk is full. Room for `chunk_rows` rows can be had at once.
  void reserve(std::uint32_t stream, std::uint64_t end, std::uint64_t oldest) {
    if (end > columns_[stream]->ready) reserve_more(stream, end, oldest);
  }
  // Whether `reserve` would have nothing to do.
  bool has_room(std::uint32_t stream, std::uint64_t end) const {
    return end <= columns_[stream]->ready;
  }
  void commit(std::uint32_t stream, std::uint64_t top) { state_.set(kTops + stream, top); }
  struct Change {
    std::size_t word;
    std::uint64_t value;
  };
  std::size_t cleared_word(std::uint32_t stream) const { return kTops + shape_.n_streams + stream; }
  // Commits several words, at most one per stream and two more: all of them or, should the process
  // die, none.
  void commit(const std::vector<Change>& changes);
  void set_cleared(std::uint32_t stream, std::uint64_t row) {
    state_.set(kTops + shape_.n_streams + stream, row);
  }
  // Writes over parts of committed rows: all of them or, should the process die, none.
  void rewrite(const std::vector<RowPatch>& patches);
  // Ends what a writer that died had begun.
  void recover_rewrites();
  // For readers of rows that a writer may write over: see RewriteJournal.
  RewriteJournal& journal() { return journal_; }
  // Waits until everything committed is on the disk and no file is about to come or go. Throws what
  // went wrong in the background, too.
  void flush();
  // Flushes, gives back disk space that holds no rows, and takes the rows out of memory, which the
  // caller holds exclusively. Without `keep` the folder is about to be deleted. `reason` is the
  // error of what is asked for later.
  void close(bool keep, const std::string& reason);

  // Bytes on the disk.
  std::uint64_t disk_bytes() const;
  // Sees to it that so many more bytes can come into memory.
  void make_room(std::size_t bytes);

 private:
  // A file with one item per slot.
  struct Mirror {
    File file;
    AddressRange range;
    std::size_t bytes = 0;  // in use
    bool lost = false;

    std::uint64_t checksum() const;
  };
  struct Column {
    Column(ChunkLayout layout, Access access, std::byte* range)
        : chunks(std::move(layout), access, range) {}
    Chunks chunks;
    std::uint64_t ready = 0;  // rows before it can be written without more ado
    std::uint64_t chunks_with_room = 0;
    std::uint64_t chunks_asked_for = 0;  // of the caretaker
    std::uint64_t dropped = 0;           // rows before it are not mapped
    std::uint64_t sealed = 0;            // rows before it have a checksum
    std::uint64_t synced = 0;            // rows before it are on the disk
    std::set<std::uint64_t> changed;     // chunks with sealed rows that were written over since
  };

  void check_words();
  std::uint64_t read_committed(std::size_t word) const;
  // Ends the commit that a dead writer had begun.
  void recover_commit();
  // The words, between two commits.
  std::vector<std::uint64_t> committed_words() const;
  void open_mirror(const char* name, std::size_t bytes, Mirror* mirror);
  void map_mirror(const char* name, Mirror* mirror);
  void reserve_more(std::uint32_t stream, std::uint64_t end, std::uint64_t oldest);
  std::vector<std::string> drop(Column* column, std::uint64_t oldest);
  void seal(Column* column, std::uint64_t end);
  // In replay_rewrites.cpp, with mapping_mutex_ held: chunks whose checksums do not fit any more.
  void mark_changed(const std::vector<RowPatch>& patches);
  void apply(const std::vector<RowPatch>& patches);
  // Gives all of them checksums, and brings them to the disk.
  void seal_changed();
  void reserve_ahead(Column* column, std::uint64_t end);
  void look_after(Column* column, std::uint64_t end);
  // In the background there is one save a second.
  void wait_for_next_save();
  // `final`: no row will change any more.
  void save(bool final);
  void sync(Column* column, std::uint64_t end);
  bool is_hot(std::size_t offset, std::size_t bytes) const;

  FolderOptions options_;
  Shape shape_;
  unsigned long generation_;
  bool open_ = false;
  std::string why_closed_;  // written before `closed_`
  std::atomic<bool> closed_{false};
  CommitState state_;
  std::size_t log_ = 0;  // the first word of the changes on their way; 0 where there are none
  Mirror marks_;
  Mirror priorities_;
  RewriteJournal journal_;
  AddressRange range_;
  std::vector<std::unique_ptr<Column>> columns_;
  Residency residency_;
  std::mutex save_mutex_;
  std::exception_ptr background_error_;  // under save_mutex_
  std::mutex
      mapping_mutex_;  // over `dropped`, `sealed`, `changed`, and rows being read to seal them
  std::atomic<bool> save_asked_{false};
  std::atomic<bool> leaving_{false};
  std::chrono::steady_clock::time_point next_save_{};
  // Last, as their work needs the rest. Saving waits for the disk; other work must not wait for it.
  Caretaker caretaker_;
  Caretaker saver_;
};

}  // namespace sharpwave
