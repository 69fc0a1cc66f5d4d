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

  void set_lanes(std::size_t n) {
    n_ = n;
    while (others_.size() + 1 < n) others_.emplace_back(size_);
  }
  float* lane(std::size_t i) { return i == 0 ? sum_ : others_[i - 1].data(); }

  // Adds up the lanes in their order.
  void add_up(Team& team) {
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
