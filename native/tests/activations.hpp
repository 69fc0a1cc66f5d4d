// Activations in double, to hold kernels against.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/learn/mlp.hpp"

namespace sharpwave {

inline constexpr Activation kActivations[] = {Activation::tanh, Activation::relu,
                                              Activation::leaky_relu, Activation::elu};

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
  }
  return NAN;
}

}  // namespace sharpwave
