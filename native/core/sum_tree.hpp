// Draws of rows in proportion to their priorities.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/isa/kernels.hpp"
#include "core/memory.hpp"

namespace sharpwave {

// A 16-ary tree of sums and minima over float32 leaves that are finite and not negative.
//
// A node is always recomputed from its children, accumulated in float64 and rounded to float32, and
// never changed by a difference: nothing drifts, and equal leaves give equal trees whatever the
// order of the changes. A leaf of 0 is never found and never sets the minimum. The sum of all
// leaves must stay below the largest float32. About 4.54 bytes per leaf. Slots are below the
// capacity: the caller checked. Not thread-safe, but for concurrent reads.
class SumTree {
 public:
  // Throws std::invalid_argument unless capacity is between 1 and 2**32.
  explicit SumTree(std::size_t capacity, const TreeKernels& table = kernels().tree);

  std::size_t capacity() const { return capacity_; }
  std::size_t bytes() const { return floats_ * sizeof(float); }

  float get(std::size_t slot) const { return levels_[0].sums[slot]; }
  // The sum of all leaves.
  double total() const;
  // The smallest positive leaf, infinity when there is none.
  float min_positive() const;

  void set(std::size_t slot, float value);
  // Sets slots[i] to values[i]; of equal slots the last wins.
  void set_many(const std::uint64_t* slots, const float* values, std::size_t n);
  // Sets n neighbors from `first` on, to one value or one each.
  void set_range(std::size_t first, std::size_t n, float value);
  void set_range(std::size_t first, std::size_t n, const float* values);
  void clear();

  // slots[i] = the leaf in which targets[i] falls when the leaves are laid end to end in the order
  // of their slots. A finite target outside [0, total) gives the positive leaf at that end. The
  // whole batch goes down level by level, so that the cache misses of one level overlap.
  void find(const double* targets, std::size_t n, std::uint64_t* slots) const;

 private:
  float* floats() const { return reinterpret_cast<float*>(memory_.data()); }
  void refresh_above(std::size_t first, std::size_t n);

  const TreeKernels* kernels_;
  std::size_t capacity_;
  std::size_t floats_ = 0;
  Memory memory_;
  std::vector<TreeLevel> levels_;  // the leaves first, the children of the root last
};

}  // namespace sharpwave
