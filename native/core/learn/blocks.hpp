// Long vectors in blocks of a fixed size, shared among threads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/learn/team.hpp"

namespace sharpwave {

constexpr std::size_t kBlockSize = 16384;

constexpr std::size_t n_blocks(std::size_t n) { return (n + kBlockSize - 1) / kBlockSize; }

// Calls body(block, first, size) for every block of a vector of n numbers.
template <typename Body>
void for_blocks(std::size_t n, Team& team, Body&& body) {
  team.run(n_blocks(n), [&](std::size_t block) {
    const std::size_t first = block * kBlockSize;
    body(block, first, std::min(kBlockSize, n - first));
  });
}

}  // namespace sharpwave
