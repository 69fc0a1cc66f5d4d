// What each of some actions is worth (src/sharpwave/nn/q_networks.py), forward and backward.
//
// An action is one choice or several, whose options lie side by side in the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/learn/mlp.hpp"

namespace sharpwave {

struct QMemory {
  MlpMemory trunk, value, advantage;
  Matrix values;                               // [n_rows, n_options]
  Matrix value_grad, trunk_grad, stream_grad;  // of a backward pass
};

class QNetwork {
 public:
  // choices: the number of options of each. With `dueling` the last hidden layer is there twice,
  // for the value of an observation and for what actions have over it: parameters lie as trunk,
  // value, advantage.
  QNetwork(std::size_t n_inputs, const std::vector<std::size_t>& hidden, Activation activation,
           std::vector<std::size_t> choices, bool dueling);

  std::size_t n_inputs() const { return n_inputs_; }
  std::size_t n_options() const { return advantage_.n_outputs(); }
  std::size_t n_parameters() const { return advantage_start_ + advantage_.n_parameters(); }
  const std::vector<std::size_t>& choices() const { return choices_; }

  // Values [n_rows, n_options] of x [n_rows, n_inputs].
  const Matrix& forward(const float* parameters, const float* x, std::size_t n_rows,
                        QMemory* memory) const;
  // What forward() left there.
  const Matrix& values(const QMemory& memory) const {
    return value_ ? memory.values : memory.advantage.outputs.back();
  }
  // After forward() of the same x: the gradient of the parameters, given that of the values, which
  // is overwritten. `team`, where it is not null, shares the work.
  void backward(const float* parameters, const float* x, std::size_t n_rows, float* grad,
                float* gradient, bool add, QMemory* memory, Team* team = nullptr) const;

  // The best options of one row of values, of each choice one; `allowed` may be null.
  void choose(const float* values, const std::uint8_t* allowed, std::size_t* best) const;

 private:
  // Subtracts from values the mean of their choice; a projection, and so its own transpose.
  void center(float* values, std::size_t n_rows) const;

  std::size_t n_inputs_;
  std::vector<std::size_t> choices_;
  std::optional<Mlp> trunk_, value_;  // of a dueling network; the trunk may be empty
  Mlp advantage_;
  std::size_t value_start_ = 0, advantage_start_ = 0;
};

}  // namespace sharpwave
