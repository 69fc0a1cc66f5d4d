// Rows of a replay folder written over, and the checksums of those that were.
#include <algorithm>
#include <cstring>

#include "core/disk/replay_folder.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace

void ReplayFolder::rewrite(const std::vector<RowPatch>& patches) {
  require_writer();
  if (patches.empty()) return;
  // Nothing gets a checksum, and no chunk goes, while its rows change.
  const std::lock_guard<std::mutex> mapping(mapping_mutex_);
  mark_changed(patches);
  journal_.begin(patches);
  apply(patches);
  journal_.end();
}

void ReplayFolder::recover_rewrites() {
  std::vector<RowPatch> patches;
  for (const RowPatch& patch : journal_.unfinished()) {
    if (patch.stream >= columns_.size() || patch.offset > options_.row_bytes ||
        patch.bytes > options_.row_bytes - patch.offset) {
      continue;
    }
    const Column& column = *columns_[patch.stream];
    const bool is_there = patch.row >= column.dropped && patch.row < top(patch.stream) &&
                          column.chunks.is_mapped(patch.row / options_.chunk_rows);
    if (is_there) patches.push_back(patch);
  }
  const std::lock_guard<std::mutex> mapping(mapping_mutex_);
  mark_changed(patches);
  apply(patches);
  journal_.end();
}

void ReplayFolder::mark_changed(const std::vector<RowPatch>& patches) {
  for (const RowPatch& patch : patches) {
    Column& column = *columns_[patch.stream];
    const std::uint64_t chunk = patch.row / options_.chunk_rows;
    if (patch.row >= column.sealed || column.changed.count(chunk) > 0) continue;
    column.chunks.mark_changed(chunk);
    column.changed.insert(chunk);
  }
}

void ReplayFolder::apply(const std::vector<RowPatch>& patches) {
  for (const RowPatch& patch : patches) {
    std::byte* row = columns_[patch.stream]->chunks.row(patch.row);
    std::memcpy(row + patch.offset, patch.data, patch.bytes);
  }
}

void ReplayFolder::seal(Column* column, std::uint64_t end) {
  const std::uint64_t rows = options_.chunk_rows;
  // Not too much at once: it brings the rows into memory, and keeps pushes from dropping chunks.
  const std::uint64_t most = std::max<std::uint64_t>(kPieceBytes / options_.row_bytes, 1);
  while (true) {
    const std::lock_guard<std::mutex> lock(mapping_mutex_);
    if (column->sealed >= end) return;
    const std::uint64_t chunk = column->sealed / rows;
    const bool changed = column->changed.count(chunk) > 0;
    const std::uint64_t begin = changed ? chunk * rows : column->sealed;
    const std::uint64_t stop = std::min({end, (chunk + 1) * rows, column->sealed + most});
    if (begin >= column->dropped) {
      const std::byte* data = column->chunks.row(begin);
      const std::size_t bytes = (stop - begin) * options_.row_bytes;
      make_room(residency_.missing(data, bytes));
      residency_.add(data, bytes);
      column->chunks.seal(begin, stop, changed);
    }
    column->changed.erase(chunk);
    column->sealed = stop;
  }
}

void ReplayFolder::seal_changed() {
  const std::uint64_t rows = options_.chunk_rows;
  for (const std::unique_ptr<Column>& column : columns_) {
    while (true) {
      const std::lock_guard<std::mutex> lock(mapping_mutex_);
      if (column->changed.empty()) break;
      const std::uint64_t chunk = *column->changed.begin();
      const std::uint64_t begin = chunk * rows;
      const std::uint64_t end = std::min(begin + rows, column->sealed);
      if (begin >= column->dropped && end > begin) {
        column->chunks.sync(begin, begin + 1);  // a checksum must not come to the disk before
        column->chunks.seal(begin, end, true);
        column->chunks.sync(begin, begin + 1);
      }
      column->changed.erase(chunk);
    }
  }
}

}  // namespace sharpwave
