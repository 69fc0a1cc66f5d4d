// A gradient that several lanes find parts of at the same time.
#pragma once

#include <cstddef>
#include <vector>

#include "core/isa/kernels.hpp"
#include "core/learn/blocks.hpp"

namespace sharpwave {

class LaneGradients {
 public:
  // `sum` [size] is memory of the caller's: the first lane's part, and in the end all of it.
  LaneGradients(float* sum, std::size_t size) : sum_(sum), size_(size) {}

  // in_order: lanes come one after the other, and are added as they come. The sum is the same.
  void begin(std::size_t n_lanes, bool in_order) {
    n_ = in_order ? 1 : n_lanes;
    while (others_.size() + 1 < n_) others_.emplace_back(size_);
  }
  // Where a lane writes its part.
  float* lane(std::size_t i) { return i == 0 || n_ == 1 ? sum_ : others_[i - 1].data(); }
  // Whether it adds to what is there.
  bool adds(std::size_t i) const { return i > 0 && n_ == 1; }

  // Adds up the lanes in their order.
  void end(Team& team) {
    if (n_ == 1) return;
    for_blocks(size_, team, [&](std::size_t, std::size_t first, std::size_t n) {
      for (std::size_t i = 1; i < n_; ++i) kernels().learn.add(sum_ + first, lane(i) + first, n);
    });
  }

 private:
  float* sum_;
  std::size_t size_, n_ = 1;
  std::vector<std::vector<float>> others_;
};

}  // namespace sharpwave
