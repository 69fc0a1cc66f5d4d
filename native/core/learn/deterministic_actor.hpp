// One action for each observation, the tanh of a network (src/sharpwave/nn/actors.py).
#pragma once

#include <cstddef>
#include <vector>

#include "core/learn/mlp.hpp"
#include "core/rng.hpp"

namespace sharpwave {

struct DeterministicPass {
  MlpMemory memory;
  Matrix actions;  // [n_rows, n_actions]
  Matrix output_grad;
};

class DeterministicActor {
 public:
  DeterministicActor(std::size_t n_obs, std::size_t n_actions,
                     const std::vector<std::size_t>& hidden, Activation activation);

  std::size_t n_obs() const { return network_.n_inputs(); }
  std::size_t n_actions() const { return network_.n_outputs(); }
  std::size_t n_parameters() const { return network_.n_parameters(); }

  const Matrix& forward(const float* parameters, const float* obs, std::size_t n,
                        DeterministicPass* pass) const;
  // After forward(): the gradient of the parameters, given that of the actions.
  void backward(const float* parameters, const float* obs, std::size_t n, const float* action_grad,
                float* gradient, bool add, DeterministicPass* pass) const;
  // Actions with normal noise of some deviation, clipped to [-1, 1].
  void explore(const float* parameters, const float* obs, std::size_t n, float deviation,
               const Philox& random, DeterministicPass* pass, float* actions) const;

 private:
  Mlp network_;
};

}  // namespace sharpwave
