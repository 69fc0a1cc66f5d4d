// The rows of a batch, shared out among threads.
#pragma once

#include <algorithm>
#include <cstddef>

namespace sharpwave {

// Lanes are a function of the number of rows alone: what is added up lane by lane does not depend
// on who went through them.
class Lanes {
 public:
  explicit Lanes(std::size_t n_rows) : n_rows_(n_rows) {
    const std::size_t chunks = (n_rows + kChunk - 1) / kChunk;
    rows_ = (chunks + kMost - 1) / kMost * kChunk;
    count_ = n_rows == 0 ? 0 : (n_rows + rows_ - 1) / rows_;
  }

  std::size_t count() const { return count_; }
  std::size_t n_rows() const { return n_rows_; }
  std::size_t first(std::size_t lane) const { return lane * rows_; }
  std::size_t size(std::size_t lane) const { return std::min(rows_, n_rows_ - first(lane)); }

 private:
  static constexpr std::size_t kChunk = 128;
  static constexpr std::size_t kMost = 16;

  std::size_t n_rows_, rows_, count_;
};

}  // namespace sharpwave
