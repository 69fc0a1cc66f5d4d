#include "core/learn/mlp.hpp"

#include <algorithm>
#include <utility>

#include "core/isa/kernels.hpp"

namespace sharpwave {

Mlp::Mlp(std::vector<std::size_t> sizes, Activation activation)
    : sizes_(std::move(sizes)), activation_(activation) {
  for (std::size_t layer = 0; layer < n_layers(); ++layer) {
    weights_.push_back(n_parameters_);
    n_parameters_ += sizes_[layer] * sizes_[layer + 1];
    biases_.push_back(n_parameters_);
    n_parameters_ += sizes_[layer + 1];
  }
}

void Mlp::activate(float* x, const float* bias, std::size_t n_rows, std::size_t layer) const {
  const LearnKernels& learn = kernels().learn;
  const bool hidden = layer + 1 < n_layers();
  const auto apply = !hidden                           ? learn.bias_identity
                     : activation_ == Activation::tanh ? learn.bias_tanh
                                                       : learn.bias_relu;
  apply(x, bias, n_rows, sizes_[layer + 1]);
}

const Matrix& Mlp::forward(const float* parameters, const float* x, std::size_t n_rows,
                           MlpMemory* memory) const {
  const LearnKernels& learn = kernels().learn;
  memory->outputs.resize(n_layers());
  for (std::size_t layer = 0; layer < n_layers(); ++layer) {
    const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
    const float* from = layer == 0 ? x : memory->outputs[layer - 1].data();
    Matrix& output = memory->outputs[layer];
    output.reshape(n_rows, out);
    memory->work.reshape(1, learn.product_work(in));
    const Product product{.m = n_rows,
                          .n = out,
                          .k = in,
                          .a = {from, in, 1},
                          .b = {parameters + weights_[layer], 1, in},
                          .c = output.data(),
                          .c_row = out,
                          .add = false};
    learn.product(product, memory->work.data());
    activate(output.data(), parameters + biases_[layer], n_rows, layer);
  }
  return memory->outputs.back();
}

const Matrix& Mlp::forward_columns(const float* parameters, const Matrix& x,
                                   MlpMemory* memory) const {
  const ColumnKernels& columns = kernels().columns;
  const auto hidden = activation_ == Activation::tanh ? columns.dense_tanh : columns.dense_relu;
  memory->outputs.resize(n_layers());
  const Matrix* from = &x;
  for (std::size_t layer = 0; layer < n_layers(); ++layer) {
    Matrix& output = memory->outputs[layer];
    output.reshape(sizes_[layer + 1], x.n_columns());
    const DenseColumns dense = {.n_in = sizes_[layer],
                                .n_out = sizes_[layer + 1],
                                .stride = x.n_columns(),
                                .weight = parameters + weights_[layer],
                                .bias = parameters + biases_[layer],
                                .x = from->data(),
                                .y = output.data()};
    (layer + 1 < n_layers() ? hidden : columns.dense_identity)(dense);
    from = &output;
  }
  return memory->outputs.back();
}

void Mlp::backward(const float* parameters, const float* x, std::size_t n_rows, float* output_grad,
                   float* gradient, float* x_grad, MlpMemory* memory) const {
  const LearnKernels& learn = kernels().learn;
  float* grad = output_grad;
  for (std::size_t layer = n_layers(); layer-- > 0;) {
    const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
    const float* from = layer == 0 ? x : memory->outputs[layer - 1].data();
    memory->work.reshape(1, learn.product_work(std::max(n_rows, out)));

    learn.add_columns(gradient + biases_[layer], grad, n_rows, out);
    const Product to_weight{.m = out,
                            .n = in,
                            .k = n_rows,
                            .a = {grad, 1, out},
                            .b = {from, in, 1},
                            .c = gradient + weights_[layer],
                            .c_row = in,
                            .add = true};
    learn.product(to_weight, memory->work.data());
    if (layer == 0 && x_grad == nullptr) return;

    memory->next_grad.reshape(n_rows, in);
    float* next = layer == 0 ? x_grad : memory->next_grad.data();
    const Product to_input{.m = n_rows,
                           .n = in,
                           .k = out,
                           .a = {grad, out, 1},
                           .b = {parameters + weights_[layer], in, 1},
                           .c = next,
                           .c_row = in,
                           .add = false};
    learn.product(to_input, memory->work.data());
    if (layer == 0) return;
    const auto back = activation_ == Activation::tanh ? learn.tanh_backward : learn.relu_backward;
    back(next, from, n_rows * in);
    std::swap(memory->grad, memory->next_grad);
    grad = memory->grad.data();
  }
}

}  // namespace sharpwave
