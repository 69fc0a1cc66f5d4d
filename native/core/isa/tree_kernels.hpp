// Kernels of native/core/sum_tree.hpp and native/core/priorities.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

// One level of a 16-ary tree. Sixteen siblings are one 64-byte block, aligned to 64 bytes; nodes
// past the end of a level are 0. A minimum of 0 says that no leaf below is positive.
struct TreeLevel {
  float* sums;
  float* mins;  // of the leaves: the leaves themselves
  std::size_t nodes;
};

struct TreeKernels {
  // Recomputes the ancestors of one leaf, up to the first that does not change.
  void (*refresh_path)(const TreeLevel* levels, std::size_t depth, std::size_t slot);
  // Recomputes the listed nodes of `parents` from their children.
  void (*refresh_nodes)(const TreeLevel& children, const TreeLevel& parents,
                        const std::uint64_t* nodes, std::size_t n);
  // Recomputes the nodes first .. last of `parents`, both included.
  void (*refresh_range)(const TreeLevel& children, const TreeLevel& parents, std::size_t first,
                        std::size_t last);
  // See SumTree::find.
  void (*find)(const TreeLevel* levels, std::size_t depth, const double* targets, std::size_t n,
               std::uint64_t* slots);
  // out[i] = x[i] ** exponent within [low, high], or 0 where x[i] is 0; x is finite and not
  // negative.
  void (*power)(const float* x, std::size_t n, double exponent, float low, float high, float* out);
  // out[i] = (smallest / x[i]) ** exponent, at most 1, or 0 where x[i] is 0.
  void (*ratio_power)(const float* x, std::size_t n, float smallest, double exponent, float* out);
};

}  // namespace sharpwave
