// Reading an EpisodeStore: what is there, and copies of it.
#include <algorithm>
#include <cstring>
#include <set>
#include <shared_mutex>
#include <tuple>

#include "core/disk/episode_store.hpp"
#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

using SharedLock = std::shared_lock<RwLock>;

[[noreturn]] void throw_gone(const char* what, std::int64_t number, std::uint64_t front,
                             std::uint64_t top) {
  const std::string text = std::string(what) + " " + std::to_string(number);
  if (number >= 0 && static_cast<std::uint64_t>(number) < front) {
    throw std::out_of_range(text + " is gone: the oldest kept is " + std::to_string(front));
  }
  throw std::out_of_range(text + " is not there: " + std::string(what) + "s are from " +
                          std::to_string(front) + " to " + std::to_string(top) + " (exclusive)");
}

// The slots of rows in a ring that holds all rows of [front, front + ring).
void find_slots(const std::int64_t* rows, std::size_t n, std::uint64_t front, std::size_t ring,
                std::vector<std::uint64_t>* slots) {
  const std::uint64_t offset = front % ring;
  slots->resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t slot = static_cast<std::uint64_t>(rows[i]) - front + offset;
    (*slots)[i] = rows[i] < 0 ? kNoSlot : slot - (slot >= ring ? ring : 0);
  }
}

// Ranges are asked for while those before them are copied: several short ones ahead, or the next
// long one, which the hardware goes on to stream.
constexpr std::size_t kMostRangesAhead = 16;
constexpr std::size_t kBytesAhead = 4096;

// Must be inlined: GCC drops calls of functions that only prefetch.
[[gnu::always_inline]] inline void prefetch_range(const DiskColumn& column, std::int64_t first,
                                                  std::int64_t n) {
  if (n == 0) return;
  const std::byte* begin = column.row(static_cast<std::uint64_t>(first));
  const std::size_t bytes = std::min(static_cast<std::size_t>(n) * column.row_bytes(), kBytesAhead);
  for (std::size_t offset = 0; offset < bytes; offset += 64) __builtin_prefetch(begin + offset);
  __builtin_prefetch(begin + bytes - 1);
}

// Which blocks rows lie in that are not in memory, and which compressed chunks that are, each once.
class AbsentBlocks {
 public:
  void look(std::size_t number, const DiskColumn& column, std::uint64_t row) {
    const std::uint64_t chunk = row / column.chunk_rows();
    if (!column.chunks().is_coded(chunk)) return;
    const bool present = column.is_present(row);
    any_ |= !present;
    const CodedBlock block{number, chunk, present ? CodedBlock::kPresent : column.block_of(row)};
    if (seen_.insert({block.column, block.chunk, block.block}).second) blocks_.push_back(block);
  }
  bool any() const { return any_; }
  const std::vector<CodedBlock>& blocks() const { return blocks_; }

 private:
  std::set<std::tuple<std::size_t, std::uint64_t, std::uint64_t>> seen_;
  std::vector<CodedBlock> blocks_;
  bool any_ = false;
};

void gather_rows(const DiskColumn& column, const std::vector<std::uint64_t>& slots,
                 std::byte* out) {
  const GatherColumn target{{0, column.row_bytes()}, slots.data(), out};
  kernels().rows.gather(column.base(), column.row_bytes(), &target, 1, slots.size());
}

}  // namespace

void EpisodeStore::refresh() {
  if (is_writer()) return;
  const std::lock_guard<std::mutex> guard(writer_mutex_);
  while (true) {
    // The writer moves the front of the episodes first, and the top of the steps before that of an
    // episode: in this order what is read fits together.
    std::uint64_t words[kVisible];
    for (const Word word : {kStepsFront, kEpisodesFront, kEpisodesTop, kStepsTop}) {
      words[word] = state_->get(word);
    }
    const auto is_known = [&](Word word) { return visible(word) == words[word]; };
    if (is_known(kStepsFront) && is_known(kEpisodesFront) && is_known(kEpisodesTop) &&
        is_known(kStepsTop)) {
      return;
    }
    const auto has_moved = [&] {  // the writer removed what was old meanwhile
      return state_->get(kStepsFront) != words[kStepsFront] ||
             state_->get(kEpisodesFront) != words[kEpisodesFront];
    };
    const std::lock_guard<RwLock> mapping(mapping_lock_);
    std::vector<ChunkCheck> absent;
    std::vector<ChunkCheck>* const damage = lenient_ ? &absent : nullptr;
    try {
      for (const auto& column : steps_) column->open(words[kStepsFront], words[kStepsTop], damage);
      for (const auto& column : episodes_) {
        column->open(words[kEpisodesFront], words[kEpisodesTop], damage);
      }
    } catch (const IoError&) {
      if (!has_moved()) throw;
      continue;
    }
    if (!absent.empty() && has_moved()) continue;
    for (std::size_t word = 0; word < kVisible; ++word) visible_[word] = words[word];
    return;
  }
}

bool EpisodeStore::is_lost(std::uint64_t episode) const {
  return lenient_ && std::binary_search(repaired_.ids.begin(), repaired_.ids.end(),
                                        static_cast<std::int64_t>(episode));
}

EpisodeTable EpisodeStore::table(bool aborted, bool open) const {
  EpisodeTable found;
  const SharedLock lock(mapping_lock_);
  const std::uint64_t front = steps_front();
  const std::uint64_t steps = steps_top();
  for (std::uint64_t id = visible(kEpisodesFront); id < visible(kEpisodesTop); ++id) {
    const EpisodeRow row = read_row(id);
    const EpisodeFlag flag = row.flag();
    const bool is_open = flag == EpisodeFlag::open;
    const bool wanted = flag == EpisodeFlag::complete ||
                        (aborted && flag == EpisodeFlag::aborted) ||
                        (open && is_open && row.start < steps);
    if (!wanted || is_lost(id)) continue;
    if (!row.lies_in(front, steps)) continue;  // finished since the last refresh
    found.ids.push_back(static_cast<std::int64_t>(id));
    found.starts.push_back(static_cast<std::int64_t>(row.start));
    found.lengths.push_back(static_cast<std::int64_t>(is_open ? steps - row.start : row.length()));
    found.flags.push_back(static_cast<std::uint8_t>(flag));
  }
  return found;
}

std::uint64_t EpisodeStore::count_complete() const {
  if (is_writer()) return complete_;
  const SharedLock lock(mapping_lock_);
  const std::uint64_t front = steps_front();
  const std::uint64_t steps = steps_top();
  std::uint64_t found = 0;
  for (std::uint64_t id = visible(kEpisodesFront); id < visible(kEpisodesTop); ++id) {
    const EpisodeRow row = read_row(id);
    found += row.flag() == EpisodeFlag::complete && row.lies_in(front, steps) && !is_lost(id);
  }
  return found;
}

std::vector<CodedBlock> EpisodeStore::gather(const std::int64_t* rows, std::size_t n,
                                             const std::size_t* columns, std::size_t n_columns,
                                             std::byte* const* out) const {
  static thread_local std::vector<std::uint64_t> slots;
  const SharedLock lock(mapping_lock_);
  const std::uint64_t front = steps_front();
  const std::uint64_t top = steps_top();
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = static_cast<std::uint64_t>(rows[i]);
    if (rows[i] != -1 && (row < front || row >= top)) throw_gone("row", rows[i], front, top);
  }
  AbsentBlocks absent;
  for (std::size_t c = 0; c < n_columns; ++c) {
    const DiskColumn& column = *steps_[columns[c]];
    for (std::size_t i = 0; column.is_coded() && i < n; ++i) {
      if (rows[i] >= 0) absent.look(columns[c], column, static_cast<std::uint64_t>(rows[i]));
    }
  }
  if (absent.any()) return absent.blocks();
  std::size_t ring = 0;
  for (std::size_t c = 0; c < n_columns; ++c) {
    const DiskColumn& column = *steps_[columns[c]];
    if (column.ring_rows() != ring) {
      ring = column.ring_rows();
      find_slots(rows, n, front, ring, &slots);
    }
    gather_rows(column, slots, out[c]);
  }
  return {};
}

std::vector<CodedBlock> EpisodeStore::gather_ranges(const std::int64_t* starts,
                                                    const std::int64_t* lengths, std::size_t n,
                                                    std::size_t width, const std::size_t* columns,
                                                    std::size_t n_columns,
                                                    std::byte* const* out) const {
  const SharedLock lock(mapping_lock_);
  const std::uint64_t front = steps_front();
  const std::uint64_t top = steps_top();
  for (std::size_t i = 0; i < n; ++i) {
    if (lengths[i] < 0 || static_cast<std::uint64_t>(lengths[i]) > width) {
      throw std::invalid_argument("lengths must be from 0 to width, " + std::to_string(width) +
                                  ", got " + std::to_string(lengths[i]));
    }
    const auto start = static_cast<std::uint64_t>(starts[i]);
    const auto length = static_cast<std::uint64_t>(lengths[i]);
    if (length == 0) continue;
    if (start < front || start >= top) throw_gone("row", starts[i], front, top);
    if (length > top - start) throw_gone("row", starts[i] + lengths[i] - 1, front, top);
  }
  AbsentBlocks absent;
  for (std::size_t c = 0; c < n_columns; ++c) {
    const DiskColumn& column = *steps_[columns[c]];
    for (std::size_t i = 0; column.is_coded() && i < n; ++i) {
      for (std::int64_t row = starts[i]; row < starts[i] + lengths[i]; ++row) {
        absent.look(columns[c], column, static_cast<std::uint64_t>(row));
      }
    }
  }
  if (absent.any()) return absent.blocks();
  for (std::size_t c = 0; c < n_columns; ++c) {
    const DiskColumn& column = *steps_[columns[c]];
    const std::size_t bytes = column.row_bytes();
    const std::size_t ahead = std::clamp<std::size_t>(
        kBytesAhead / std::max<std::size_t>(width * bytes, 1), 1, kMostRangesAhead);
    for (std::size_t i = 0; i < n && i < ahead; ++i) {
      prefetch_range(column, starts[i], lengths[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (i + ahead < n) prefetch_range(column, starts[i + ahead], lengths[i + ahead]);
      std::byte* target = out[c] + i * width * bytes;
      const auto length = static_cast<std::size_t>(lengths[i]);
      if (length > 0) column.read(static_cast<std::uint64_t>(starts[i]), length, target);
      if (length < width) std::memset(target + length * bytes, 0, (width - length) * bytes);
    }
  }
  return {};
}

void EpisodeStore::gather_meta(const std::int64_t* ids, std::size_t n, std::size_t column,
                               std::byte* out) const {
  static thread_local std::vector<std::uint64_t> slots;
  const SharedLock lock(mapping_lock_);
  const std::uint64_t front = visible(kEpisodesFront);
  const std::uint64_t top = visible(kEpisodesTop);
  for (std::size_t i = 0; i < n; ++i) {
    const auto id = static_cast<std::uint64_t>(ids[i]);
    if (ids[i] < 0 || id < front || id >= top) throw_gone("episode", ids[i], front, top);
  }
  const DiskColumn& source = *episodes_.at(column);
  find_slots(ids, n, front, source.ring_rows(), &slots);
  gather_rows(source, slots, out);
}

}  // namespace sharpwave
