// Activations in double, to hold kernels against.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/learn/mlp.hpp"

namespace sharpwave {

inline constexpr Activation kActivations[] = {
    Activation::tanh, Activation::relu, Activation::leaky_relu, Activation::elu,
    Activation::selu, Activation::gelu, Activation::silu};

inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::tanh:
      return std::tanh(x);
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::leaky_relu:
      return x > 0.0 ? x : 0.01 * x;
    case Activation::elu:
      return x > 0.0 ? x : std::expm1(x);
    case Activation::selu:
      return 1.0507009873554805 * (x > 0.0 ? x : 1.6732632423543772 * std::expm1(x));
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::silu:
      return x / (1.0 + std::exp(-x));
  }
  return NAN;
}

}  // namespace sharpwave
