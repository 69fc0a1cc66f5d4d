// Standard normal variables that are a function of where they stand.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/rng.hpp"

namespace sharpwave {

// Variables `first` to `first + n - 1`, of which `first` is even; `purpose` separates sequences.
// By Box and Muller: 64 random bits make two.
inline void draw_normals(const Philox& random, std::uint32_t purpose, std::size_t first,
                         std::size_t n, float* out) {
  constexpr float kTwoPi = 6.28318530717958647692f;
  for (std::size_t i = 0; i < n; i += 2) {
    const std::uint64_t bits = random.bits((first + i) / 2, 0, purpose);
    const auto u = static_cast<float>((bits >> 40) + 1) * 0x1p-24f;  // in (0, 1]
    const auto turn = static_cast<float>(bits & 0xffffffU) * 0x1p-24f;
    const float radius = std::sqrt(-2.0f * std::log(u));
    out[i] = radius * std::cos(kTwoPi * turn);
    if (i + 1 < n) out[i + 1] = radius * std::sin(kTwoPi * turn);
  }
}

// Noise of a step: given, or drawn.
struct Noise {
  const float* given = nullptr;
  Philox random{0, 0};

  // Variables of a sequence, from `first` on, which is even.
  void read(std::uint32_t sequence, std::size_t sequence_size, std::size_t first, std::size_t n,
            float* out) const {
    if (given == nullptr) return draw_normals(random, sequence, first, n, out);
    const float* from = given + sequence * sequence_size + first;
    for (std::size_t i = 0; i < n; ++i) out[i] = from[i];
  }
};

}  // namespace sharpwave
