// Kernels of native/core/learn: matrix products, activations and optimizers in float32.
#pragma once

#include <array>
#include <cstddef>

#include "core/isa/activation.hpp"

namespace sharpwave {

// Element (i, j) is data[i * row + j * column].
struct MatrixView {
  const float* data;
  std::size_t row;
  std::size_t column;
};

// C [m, n] = A [m, k] B [k, n], or C + A B. C has rows of `c_row` floats.
struct Product {
  std::size_t m, n, k;
  MatrixView a, b;
  float* c;
  std::size_t c_row;
  bool add;
};

// Numbers of one step of Adam, rounded once from double: 1 - beta in float would lose digits.
struct AdamStep {
  float share1, beta2, share2;  // 1 - beta1, beta2, 1 - beta2
  float size;                   // lr / (1 - beta1^t)
  float root_factor;            // 1 / sqrt(1 - beta2^t)
  float eps;
};

struct RmspropStep {
  float lr, alpha, share, eps;  // share = 1 - alpha
};

struct LearnKernels {
  // `work` has at least product_work() floats.
  void (*product)(const Product& product, float* work);
  std::size_t (*product_work)(std::size_t k);
  // x [n_rows, n] + bias [n], then the activation, in place. Where keeps_slope(), `slopes`
  // [n_rows, n] receives the derivatives, otherwise it may be null.
  using BiasActivation = void (*)(float* x, const float* bias, float* slopes, std::size_t n_rows,
                                  std::size_t n);
  BiasActivation bias_identity;
  std::array<BiasActivation, kNumActivations> bias_activations;
  // grad *= derivative of the activation, given its slopes where keeps_slope(), else its outputs.
  using ActivationBackward = void (*)(float* grad, const float* left, std::size_t n);
  std::array<ActivationBackward, kNumActivations> activation_backwards;
  // sums [n] += columns of x [n_rows, n].
  void (*add_columns)(float* sums, const float* x, std::size_t n_rows, std::size_t n);
  // sums += x
  void (*add)(float* sums, const float* x, std::size_t n);
  double (*sum_of_squares)(const float* x, std::size_t n);
  void (*scale)(float* x, float factor, std::size_t n);
  void (*adam)(float* data, const float* grad, float* mean, float* square, std::size_t n,
               const AdamStep& step);
  void (*rmsprop)(float* data, const float* grad, float* square, std::size_t n,
                  const RmspropStep& step);
};

}  // namespace sharpwave
