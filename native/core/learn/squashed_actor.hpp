// The tanh of a normal variable whose mean and deviation depend on the observation
// (src/sharpwave/nn/actors.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/learn/mlp.hpp"
#include "core/learn/noise.hpp"

namespace sharpwave {

// What sample() leaves behind; all but the network's as [1, n_rows * n_actions] and some room.
struct SquashedPass {
  MlpMemory memory;
  Matrix mean, log_std, noise, actions, spread, density;
  Matrix output_grad;
};

class SquashedActor {
 public:
  SquashedActor(std::size_t n_obs, std::size_t n_actions, const std::vector<std::size_t>& hidden,
                Activation activation);

  std::size_t n_obs() const { return network_.n_inputs(); }
  std::size_t n_actions() const { return n_actions_; }
  std::size_t n_parameters() const { return network_.n_parameters(); }

  // Draws actions [n, n_actions], which stay in `pass`, with the noise that it holds; writes their
  // log-probabilities [n].
  void sample(const float* parameters, const float* obs, std::size_t n, SquashedPass* pass,
              float* log_probs) const;
  // Makes room for the noise of n rows.
  float* noise_of(std::size_t n, SquashedPass* pass) const;
  // After sample(): the gradient of the parameters, given that of the actions [n, n_actions] and
  // `share`, that of every log-probability.
  void backward(const float* parameters, const float* obs, std::size_t n, const float* action_grad,
                float share, float* gradient, bool add, SquashedPass* pass) const;
  // The most likely actions before squashing, squashed.
  void act(const float* parameters, const float* obs, std::size_t n, SquashedPass* pass,
           float* actions) const;
  // Drawn actions.
  void explore(const float* parameters, const float* obs, std::size_t n, const Philox& random,
               SquashedPass* pass, float* actions) const;

 private:
  std::size_t n_actions_;
  Mlp network_;
};

}  // namespace sharpwave
