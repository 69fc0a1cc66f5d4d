// Multi-layer perceptrons over one flat vector of parameters, forward and backward.
//
// Parameters lie as torch's state_dict has them: layer by layer the weight [out, in], then the bias
// [out]. So a torch module whose parameters are views of the same memory sees every change.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/isa/learn_kernels.hpp"
#include "core/learn/matrix.hpp"
#include "core/learn/team.hpp"

namespace sharpwave {

// By the name that a configuration gives it.
Activation activation_of(const std::string& name);

// Of the input, the hidden layers and the output.
std::vector<std::size_t> layer_sizes(std::size_t n_inputs, const std::vector<std::size_t>& hidden,
                                     std::size_t n_outputs);

// What passes leave behind for the passes after them.
struct MlpMemory {
  std::vector<Matrix> outputs;  // of every layer, after its activation
  std::vector<Matrix> slopes;   // of activations where keeps_slope()
  Matrix grad, next_grad;
  Matrix work, other_work;
};

// Where a backward pass leaves what it finds.
struct MlpGradients {
  float* parameters;            // null where they are not wanted
  bool add;                     // to what is there of them, otherwise it is overwritten
  float* inputs;                // [n_rows, n_inputs - first_input]; null where they are not wanted
  std::size_t first_input = 0;  // of a row
};

class Mlp {
 public:
  // sizes: of the input, the hidden layers and the output. `activates_last`: the output too.
  Mlp(std::vector<std::size_t> sizes, Activation activation, bool activates_last = false);
  // Network `i` of `n` whose parameters lie as in torch's nn.StackedMLP: layer by layer the weights
  // [n, in, out], then the biases [n, out].
  static Mlp stacked(std::vector<std::size_t> sizes, Activation activation, std::size_t n,
                     std::size_t i);

  // Length of the flat vector, with all networks of a stack.
  std::size_t n_parameters() const { return n_parameters_; }
  std::size_t n_inputs() const { return sizes_.front(); }
  std::size_t n_outputs() const { return sizes_.back(); }

  // Outputs [n_rows, n_outputs] of x [n_rows, n_inputs], in `memory`, which grows where it is too
  // small.
  const Matrix& forward(const float* parameters, const float* x, std::size_t n_rows,
                        MlpMemory* memory) const;
  // The same of columns: outputs [n_outputs, lanes] of x [n_inputs, lanes], of which `lanes` is a
  // multiple of kLanes. Quicker where rows are few.
  const Matrix& forward_columns(const float* parameters, const Matrix& x, MlpMemory* memory) const;
  // After forward() of the same x: adds to the gradient of the parameters, given that of the
  // outputs, which is overwritten. `x_grad`, where it is not null, receives that of x.
  void backward(const float* parameters, const float* x, std::size_t n_rows, float* output_grad,
                float* gradient, float* x_grad, MlpMemory* memory) const {
    backward(parameters, x, n_rows, output_grad, {gradient, true, x_grad}, memory);
  }
  // `team`, where it is not null, shares the products of each layer.
  void backward(const float* parameters, const float* x, std::size_t n_rows, float* output_grad,
                const MlpGradients& gradients, MlpMemory* memory, Team* team = nullptr) const;
  // Has `memory` forget all rows of a forward pass but those given, which rise.
  void keep_rows(const std::size_t* rows, std::size_t n, MlpMemory* memory) const;

 private:
  std::size_t n_layers() const { return sizes_.size() - 1; }
  void place(std::size_t n_networks, std::size_t network);
  // Weights of a layer, [out, in].
  MatrixView weight(const float* parameters, std::size_t layer) const;
  void add_layer_gradient(const float* x, std::size_t n_rows, const float* output_grad,
                          std::size_t layer, const MlpGradients& gradients, Matrix* work) const;
  void activate(const float* bias, std::size_t layer, MlpMemory* memory) const;

  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> weights_, biases_;  // where they start
  Activation activation_;
  std::size_t n_activated_ = 0;
  bool is_stacked_ = false;
  std::size_t n_parameters_ = 0;
};

}  // namespace sharpwave
