// Activations of multi-layer perceptrons, in the order in which tables of kernels have them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

enum class Activation : std::uint8_t { tanh, relu, leaky_relu, elu, selu, gelu, silu };

inline constexpr std::size_t kNumActivations = 7;

constexpr std::size_t index_of(Activation activation) {
  return static_cast<std::size_t>(activation);
}

// Whether the derivative cannot be told from the output, so that a forward pass has to keep it.
constexpr bool keeps_slope(Activation activation) { return activation >= Activation::gelu; }

}  // namespace sharpwave
