// The steps of episodes that are going on side by side, one row for all of them: they become
// episodes of contiguous rows when they end, each of its own length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/disk/disk_column.hpp"

namespace sharpwave {

struct EpisodeOptions;

class EpisodeLanes {
 public:
  // `field_bytes`: bytes of every field of a step. Lanes of a writer that are made anew have no
  // rows yet; others have `rows` of them in the folder, of which `flushed` are on the disk.
  EpisodeLanes(const EpisodeOptions& options, const std::vector<std::size_t>& field_bytes,
               std::size_t n_lanes, std::uint64_t rows, FlushedRows flushed);
  // Removes the files of lanes, whatever their number.
  static void remove_files(const std::string& folder);

  std::size_t size() const { return lengths_.size(); }
  std::uint64_t length(std::size_t lane) const { return lengths_[lane]; }
  std::uint64_t rows() const { return rows_; }

  // Whether the rows must move to make room for one more.
  bool must_grow() const { return column_->must_grow(rows_ + 1); }
  // Makes room for one row more.
  void reserve();
  // Writes a row: of every field one value per lane, of which those count whose lane is active.
  void write(const Source* steps, const std::uint8_t* active);
  // Copies the values of a field that count for a lane to rows of a column from `first` on.
  void copy(std::size_t lane, std::size_t field, DiskColumn* column, std::uint64_t first) const;
  // Brings rows [begin, end) to the disk.
  void write_through(std::uint64_t begin, std::uint64_t end);

 private:
  const std::uint8_t* active(std::uint64_t row) const {
    return reinterpret_cast<const std::uint8_t*>(column_->row(row)) + mask_offset_;
  }

  std::vector<std::size_t> field_bytes_;
  std::vector<std::size_t> offsets_;
  std::size_t mask_offset_ = 0;
  std::vector<std::uint64_t> lengths_;
  std::uint64_t rows_;
  std::unique_ptr<DiskColumn> column_;
};

}  // namespace sharpwave
