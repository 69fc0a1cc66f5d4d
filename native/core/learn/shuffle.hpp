// Orders of the rows of a rollout, one for each pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/rng.hpp"

namespace sharpwave {

// Fills orders [n_orders, n] with permutations of 0 to n - 1.
inline void shuffle(const Philox& random, std::size_t n_orders, std::size_t n,
                    std::int64_t* orders) {
  std::vector<std::uint64_t> bits(n);
  for (std::size_t i = 0; i < n_orders; ++i, orders += n) {
    random.fill(bits.data(), n, static_cast<std::uint32_t>(i));
    std::iota(orders, orders + n, std::int64_t{0});
    for (std::size_t left = n; left > 1; --left) {
      std::swap(orders[left - 1], orders[Philox::scale(bits[left - 1], left)]);
    }
  }
}

}  // namespace sharpwave
