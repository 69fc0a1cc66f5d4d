#include "core/sum_tree.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

namespace sharpwave {
namespace {

constexpr std::size_t kFanout = 16;
constexpr std::size_t kMaxCapacity = std::size_t{1} << 32;
// Changes are carried up in chunks, whose bookkeeping fits on the stack.
constexpr std::size_t kChunk = 1024;

std::size_t round_up(std::size_t n) { return (n + kFanout - 1) / kFanout * kFanout; }

// Replaces nodes by their parents and returns how many are left. Where repetitions are likely, a
// bitmap of the level above leaves each parent once; elsewhere a rare second refresh is cheaper.
std::size_t to_parents(std::uint64_t* nodes, std::size_t n, std::size_t parents) {
  if (parents > kFanout * n) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t parent = nodes[i] / kFanout;
      nodes[kept] = parent;
      kept += i + 1 == n || nodes[i + 1] / kFanout != parent;
    }
    return kept;
  }
  std::array<std::uint64_t, kFanout * kChunk / 64> seen;
  const std::size_t words = (parents + 63) / 64;
  std::fill_n(seen.begin(), words, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t parent = nodes[i] / kFanout;
    seen[parent / 64] |= std::uint64_t{1} << (parent % 64);
  }
  std::size_t kept = 0;
  for (std::size_t word = 0; word < words; ++word) {
    for (std::uint64_t bits = seen[word]; bits != 0; bits &= bits - 1) {
      nodes[kept++] = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    }
  }
  return kept;
}

}  // namespace

SumTree::SumTree(std::size_t capacity, const TreeKernels& table)
    : kernels_(&table), capacity_(capacity) {
  if (capacity == 0 || capacity > kMaxCapacity) {
    throw std::invalid_argument("capacity must be between 1 and " + std::to_string(kMaxCapacity) +
                                ", got " + std::to_string(capacity));
  }
  // The leaves are their own minima; every level above has sums and minima.
  floats_ = round_up(capacity);
  levels_.push_back({nullptr, nullptr, capacity});
  while (levels_.back().nodes > kFanout) {
    const std::size_t nodes = round_up(levels_.back().nodes) / kFanout;
    levels_.push_back({nullptr, nullptr, nodes});
    floats_ += 2 * round_up(nodes);
  }
  // Zeroed memory is an empty tree, and pages that were never touched cost nothing.
  memory_ = Memory(floats_ * sizeof(float));
  float* next = floats();
  for (TreeLevel& level : levels_) {
    const std::size_t size = round_up(level.nodes);
    const bool leaves = &level == &levels_.front();
    level.sums = next;
    level.mins = leaves ? next : next + size;
    next += leaves ? size : 2 * size;
  }
}

double SumTree::total() const {
  double sum = 0.0;
  for (std::size_t i = 0; i < kFanout; ++i) {
    sum += static_cast<double>(levels_.back().sums[i]);
  }
  return sum;
}

float SumTree::min_positive() const {
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < kFanout; ++i) {
    const float x = levels_.back().mins[i];
    least = x > 0.0f && x < least ? x : least;
  }
  return least;
}

void SumTree::set(std::size_t slot, float value) {
  levels_[0].sums[slot] = value;
  kernels_->refresh_path(levels_.data(), levels_.size(), slot);
}

void SumTree::set_many(const std::uint64_t* slots, const float* values, std::size_t n) {
  std::array<std::uint64_t, kChunk> nodes;
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    std::size_t count = std::min(n - begin, kChunk);
    for (std::size_t i = begin; i < begin + count; ++i) {
      __builtin_prefetch(levels_[0].sums + slots[i], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      nodes[i] = slots[begin + i];
      levels_[0].sums[nodes[i]] = values[begin + i];
    }
    for (std::size_t level = 1; level < levels_.size(); ++level) {
      count = to_parents(nodes.data(), count, levels_[level].nodes);
      kernels_->refresh_nodes(levels_[level - 1], levels_[level], nodes.data(), count);
    }
  }
}

void SumTree::set_range(std::size_t first, std::size_t n, float value) {
  std::fill_n(levels_[0].sums + first, n, value);
  refresh_above(first, n);
}

void SumTree::set_range(std::size_t first, std::size_t n, const float* values) {
  std::copy_n(values, n, levels_[0].sums + first);
  refresh_above(first, n);
}

void SumTree::refresh_above(std::size_t first, std::size_t n) {
  if (n == 0) {
    return;
  }
  std::size_t last = first + n - 1;
  for (std::size_t level = 1; level < levels_.size(); ++level) {
    first /= kFanout;
    last /= kFanout;
    kernels_->refresh_range(levels_[level - 1], levels_[level], first, last);
  }
}

void SumTree::clear() { std::fill_n(floats(), floats_, 0.0f); }

void SumTree::find(const double* targets, std::size_t n, std::uint64_t* slots) const {
  kernels_->find(levels_.data(), levels_.size(), targets, n, slots);
}

}  // namespace sharpwave
