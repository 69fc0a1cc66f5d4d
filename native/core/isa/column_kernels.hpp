// Kernels of networks on columns: a number of every row side by side, so that few rows pass through
// a layer without being packed or turned.
#pragma once

#include <array>
#include <cstddef>

#include "core/isa/activation.hpp"

namespace sharpwave {

// y [n_out, stride] = activation(weight [n_out, n_in] x [n_in, stride] + bias). `stride` is a
// multiple of kLanes.
struct DenseColumns {
  std::size_t n_in, n_out, stride;
  const float* weight;
  const float* bias;
  const float* x;
  float* y;
};

struct ColumnKernels {
  using Dense = void (*)(const DenseColumns& layer);
  Dense dense_identity;
  std::array<Dense, kNumActivations> dense_activations;
};

}  // namespace sharpwave
