// Multi-layer perceptrons over one flat vector of parameters, forward and backward.
//
// Parameters lie as torch's state_dict has them: layer by layer the weight [out, in], then the bias
// [out]. So a torch module whose parameters are views of the same memory sees every change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/learn/matrix.hpp"

namespace sharpwave {

enum class Activation : std::uint8_t { tanh, relu };

// What passes leave behind for the passes after them.
struct MlpMemory {
  std::vector<Matrix> outputs;  // of every layer, after its activation
  Matrix grad, next_grad;
  Matrix work;
};

class Mlp {
 public:
  // sizes: of the input, the hidden layers and the output.
  Mlp(std::vector<std::size_t> sizes, Activation activation);

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
                float* gradient, float* x_grad, MlpMemory* memory) const;

 private:
  std::size_t n_layers() const { return sizes_.size() - 1; }
  void activate(float* x, const float* bias, std::size_t n_rows, std::size_t layer) const;

  std::vector<std::size_t> sizes_;
  std::vector<std::size_t> weights_, biases_;  // where they start
  Activation activation_;
  std::size_t n_parameters_ = 0;
};

}  // namespace sharpwave
