#include "core/learn/mlp.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

constexpr std::array<std::string_view, kNumActivations> kNames = {
    "tanh", "relu", "leaky_relu", "elu", "selu", "gelu", "silu"};

}  // namespace

Activation activation_of(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<Activation>(found - kNames.begin());
  std::string known;
  for (const std::string_view one : kNames) known += (known.empty() ? "" : ", ") + std::string(one);
  throw std::invalid_argument("activation must be one of " + known + ", got '" + name + "'");
}

std::vector<std::size_t> layer_sizes(std::size_t n_inputs, const std::vector<std::size_t>& hidden,
                                     std::size_t n_outputs) {
  std::vector<std::size_t> sizes{n_inputs};
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(n_outputs);
  return sizes;
}

Mlp::Mlp(std::vector<std::size_t> sizes, Activation activation, bool activates_last)
    : sizes_(std::move(sizes)), activation_(activation) {
  n_activated_ = n_layers() - (activates_last ? 0 : 1);
  place(1, 0);
}

Mlp Mlp::stacked(std::vector<std::size_t> sizes, Activation activation, std::size_t n,
                 std::size_t i) {
  Mlp network(std::move(sizes), activation);
  network.is_stacked_ = true;
  network.place(n, i);
  return network;
}

void Mlp::place(std::size_t n_networks, std::size_t network) {
  weights_.clear();
  biases_.clear();
  n_parameters_ = 0;
  for (std::size_t layer = 0; layer < n_layers(); ++layer) {
    const std::size_t weight = sizes_[layer] * sizes_[layer + 1], bias = sizes_[layer + 1];
    weights_.push_back(n_parameters_ + network * weight);
    n_parameters_ += n_networks * weight;
    biases_.push_back(n_parameters_ + network * bias);
    n_parameters_ += n_networks * bias;
  }
}

MatrixView Mlp::weight(const float* parameters, std::size_t layer) const {
  const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
  const float* data = parameters + weights_[layer];
  return is_stacked_ ? MatrixView{data, 1, out} : MatrixView{data, in, 1};
}

void Mlp::activate(const float* bias, std::size_t layer, MlpMemory* memory) const {
  const LearnKernels& learn = kernels().learn;
  Matrix& output = memory->outputs[layer];
  const std::size_t n_rows = output.n_rows(), n = output.n_columns();
  if (layer >= n_activated_) return learn.bias_identity(output.data(), bias, nullptr, n_rows, n);
  float* slopes = nullptr;
  if (keeps_slope(activation_)) {
    memory->slopes[layer].reshape(n_rows, n);
    slopes = memory->slopes[layer].data();
  }
  learn.bias_activations[index_of(activation_)](output.data(), bias, slopes, n_rows, n);
}

const Matrix& Mlp::forward(const float* parameters, const float* x, std::size_t n_rows,
                           MlpMemory* memory) const {
  const LearnKernels& learn = kernels().learn;
  memory->outputs.resize(n_layers());
  memory->slopes.resize(keeps_slope(activation_) ? n_activated_ : 0);
  for (std::size_t layer = 0; layer < n_layers(); ++layer) {
    const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
    const float* from = layer == 0 ? x : memory->outputs[layer - 1].data();
    Matrix& output = memory->outputs[layer];
    output.reshape(n_rows, out);
    memory->work.reshape(1, learn.product_work(in));
    const MatrixView weights = weight(parameters, layer);
    const Product product{.m = n_rows,
                          .n = out,
                          .k = in,
                          .a = {from, in, 1},
                          .b = {weights.data, weights.column, weights.row},
                          .c = output.data(),
                          .c_row = out,
                          .add = false};
    learn.product(product, memory->work.data());
    activate(parameters + biases_[layer], layer, memory);
  }
  return memory->outputs.back();
}

const Matrix& Mlp::forward_columns(const float* parameters, const Matrix& x,
                                   MlpMemory* memory) const {
  const ColumnKernels& columns = kernels().columns;
  const auto hidden = columns.dense_activations[index_of(activation_)];
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
                   const MlpGradients& gradients, MlpMemory* memory, Team* team) const {
  const LearnKernels& learn = kernels().learn;
  const auto back = learn.activation_backwards[index_of(activation_)];
  const std::vector<Matrix>& left = keeps_slope(activation_) ? memory->slopes : memory->outputs;
  float* grad = output_grad;
  for (std::size_t layer = n_layers(); layer-- > 0;) {
    const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
    if (layer < n_activated_) back(grad, left[layer].data(), n_rows * out);
    const float* from = layer == 0 ? x : memory->outputs[layer - 1].data();
    const auto to_weights = [&] {
      add_layer_gradient(from, n_rows, grad, layer, gradients, &memory->other_work);
    };
    const auto to_inputs = [&] {
      const std::size_t first = layer == 0 ? gradients.first_input : 0;
      const MatrixView weights = weight(parameters, layer);
      memory->work.reshape(1, learn.product_work(out));
      memory->next_grad.reshape(n_rows, in);
      float* next = layer == 0 ? gradients.inputs : memory->next_grad.data();
      const Product product{
          .m = n_rows,
          .n = in - first,
          .k = out,
          .a = {grad, out, 1},
          .b = {weights.data + first * weights.column, weights.row, weights.column},
          .c = next,
          .c_row = in - first,
          .add = false};
      learn.product(product, memory->work.data());
    };
    const bool to_both = gradients.parameters != nullptr && layer > 0;
    if (team != nullptr && to_both) {
      team->run(2, [&](std::size_t task) { task == 0 ? to_weights() : to_inputs(); });
    } else {
      if (gradients.parameters != nullptr) to_weights();
      if (layer > 0 || gradients.inputs != nullptr) to_inputs();
    }
    std::swap(memory->grad, memory->next_grad);
    grad = memory->grad.data();
  }
}

void Mlp::add_layer_gradient(const float* x, std::size_t n_rows, const float* output_grad,
                             std::size_t layer, const MlpGradients& gradients, Matrix* work) const {
  const LearnKernels& learn = kernels().learn;
  const std::size_t in = sizes_[layer], out = sizes_[layer + 1];
  float* bias = gradients.parameters + biases_[layer];
  if (!gradients.add) std::fill(bias, bias + out, 0.0f);
  learn.add_columns(bias, output_grad, n_rows, out);
  work->reshape(1, learn.product_work(n_rows));
  Product product{.m = out,
                  .n = in,
                  .k = n_rows,
                  .a = {output_grad, 1, out},
                  .b = {x, in, 1},
                  .c = gradients.parameters + weights_[layer],
                  .c_row = in,
                  .add = gradients.add};
  if (is_stacked_) {  // whose weights are [in, out]
    product.m = in;
    product.n = product.c_row = out;
    product.a = {x, 1, in};
    product.b = {output_grad, out, 1};
  }
  learn.product(product, work->data());
}

void Mlp::keep_rows(const std::size_t* rows, std::size_t n, MlpMemory* memory) const {
  for (std::vector<Matrix>* kept : {&memory->outputs, &memory->slopes}) {
    for (Matrix& matrix : *kept) {
      for (std::size_t i = 0; i < n; ++i) {
        if (rows[i] != i) std::copy_n(matrix.row(rows[i]), matrix.n_columns(), matrix.row(i));
      }
    }
  }
}

}  // namespace sharpwave
