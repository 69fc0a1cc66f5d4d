// Steps of a world model's imagination, without gradients
// (src/sharpwave/nn/world_scan.py has their definition).
#pragma once

#include <cstddef>
#include <vector>

#include "core/isa/learn_kernels.hpp"

namespace sharpwave {

// A matrix product, in memory that the thread keeps.
void multiply(const Product& product);

// y [rows, n] = x [rows, k] weight' + bias, then norm_silu by the scale where there is one.
struct DenseLayer {
  const float* weight;  // [n, k]
  const float* bias;    // [n]
  const float* scale;   // [n], or null
  std::size_t n, k;

  void forward(const float* x, std::size_t rows, float* y) const;
};

// One layer after another; `y` has the size of the last one.
void forward_layers(const std::vector<DenseLayer>& layers, const float* x, std::size_t rows,
                    float* y);

// A step of the recurrent unit and the draw of what comes, for rows of D, S and A numbers.
struct ImaginedStep {
  DenseLayer of_deter, of_stoch, of_action;  // D, S and A to h each
  const float* shared;                       // [2 h, D], of what is remembered and drawn
  const float* action;                       // [h, D]
  const float* bias;                         // [D]
  const float* own;                          // [K, D / K, D / K]
  const float* scale;                        // [D]
  const float* gates;                        // [K, D / K, 3 D / K]
  const float* gates_bias;                   // [K, 3 D / K]
  std::vector<DenseLayer> prior;             // D to S
  std::size_t blocks, classes;               // K, and of each latent
  float share;                               // of the uniform distribution in each latent

  std::size_t deter() const { return of_deter.k; }
  std::size_t stoch() const { return of_stoch.k; }
  // The state [rows, D] and latents [rows, S] after actions [rows, A] in a state.
  void forward(const float* before, const float* drawn, const float* actions, const float* noise,
               std::size_t rows, float* deter_after, float* drawn_after) const;
};

}  // namespace sharpwave
