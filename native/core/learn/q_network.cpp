#include "core/learn/q_network.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

using Sizes = std::vector<std::size_t>;

// Sizes of the layers from the input, or of a dueling network from its trunk, to the options.
Sizes advantage_sizes(std::size_t n_inputs, const Sizes& hidden, std::size_t n_options,
                      bool dueling) {
  Sizes sizes = layer_sizes(n_inputs, hidden, n_options);
  if (dueling && sizes.size() > 3) sizes.erase(sizes.begin(), sizes.end() - 3);
  return sizes;
}

}  // namespace

QNetwork::QNetwork(std::size_t n_inputs, const Sizes& hidden, Activation activation, Sizes choices,
                   bool dueling)
    : n_inputs_(n_inputs),
      choices_(std::move(choices)),
      advantage_(advantage_sizes(n_inputs, hidden,
                                 std::accumulate(choices_.begin(), choices_.end(), std::size_t{0}),
                                 dueling),
                 activation) {
  if (!dueling) return;
  if (hidden.size() > 1) {
    Sizes shared = layer_sizes(n_inputs, hidden, 1);
    shared.resize(hidden.size());
    trunk_.emplace(std::move(shared), activation, true);
    value_start_ = trunk_->n_parameters();
  }
  value_.emplace(advantage_sizes(n_inputs, hidden, 1, dueling), activation);
  advantage_start_ = value_start_ + value_->n_parameters();
}

const Matrix& QNetwork::forward(const float* parameters, const float* x, std::size_t n_rows,
                                QMemory* memory) const {
  if (!value_) return advantage_.forward(parameters, x, n_rows, &memory->advantage);
  if (trunk_) x = trunk_->forward(parameters, x, n_rows, &memory->trunk).data();
  const Matrix& state = value_->forward(parameters + value_start_, x, n_rows, &memory->value);
  const Matrix& advantage =
      advantage_.forward(parameters + advantage_start_, x, n_rows, &memory->advantage);
  Matrix& values = memory->values;
  values.reshape(n_rows, n_options());
  std::copy_n(advantage.data(), advantage.size(), values.data());
  center(values.data(), n_rows);
  for (std::size_t i = 0; i < n_rows; ++i) {
    for (std::size_t j = 0; j < n_options(); ++j) values.row(i)[j] += state.data()[i];
  }
  return values;
}

void QNetwork::backward(const float* parameters, const float* x, std::size_t n_rows, float* grad,
                        float* gradient, bool add, QMemory* memory, Team* team) const {
  if (!value_) {
    return advantage_.backward(parameters, x, n_rows, grad, {gradient, add, nullptr},
                               &memory->advantage, team);
  }
  memory->value_grad.reshape(n_rows, 1);
  for (std::size_t i = 0; i < n_rows; ++i) {
    const float* row = grad + i * n_options();
    memory->value_grad.data()[i] = std::accumulate(row, row + n_options(), 0.0f);
  }
  center(grad, n_rows);
  float *trunk_grad = nullptr, *stream_grad = nullptr;
  const float* input = x;
  if (trunk_) {
    input = memory->trunk.outputs.back().data();
    memory->trunk_grad.reshape(n_rows, trunk_->n_outputs());
    memory->stream_grad.reshape(n_rows, trunk_->n_outputs());
    trunk_grad = memory->trunk_grad.data();
    stream_grad = memory->stream_grad.data();
  }
  value_->backward(parameters + value_start_, input, n_rows, memory->value_grad.data(),
                   {gradient + value_start_, add, stream_grad}, &memory->value, team);
  advantage_.backward(parameters + advantage_start_, input, n_rows, grad,
                      {gradient + advantage_start_, add, trunk_grad}, &memory->advantage, team);
  if (!trunk_) return;
  kernels().learn.add(trunk_grad, stream_grad, memory->trunk_grad.size());
  trunk_->backward(parameters, x, n_rows, trunk_grad, {gradient, add, nullptr}, &memory->trunk,
                   team);
}

void QNetwork::choose(const float* values, const std::uint8_t* allowed, std::size_t* best) const {
  std::size_t first = 0;
  for (const std::size_t n : choices_) {
    // Like torch's, the first NaN is the largest.
    float largest = -std::numeric_limits<float>::infinity();
    *best = first;
    for (std::size_t i = first; i < first + n; ++i) {
      if (allowed != nullptr && !allowed[i]) continue;
      if (values[i] > largest || values[i] != values[i]) {
        largest = values[i];
        *best = i;
        if (largest != largest) break;
      }
    }
    ++best;
    first += n;
  }
}

void QNetwork::center(float* values, std::size_t n_rows) const {
  for (std::size_t i = 0; i < n_rows; ++i) {
    for (const std::size_t n : choices_) {
      const float mean = std::accumulate(values, values + n, 0.0f) / static_cast<float>(n);
      for (std::size_t j = 0; j < n; ++j) values[j] -= mean;
      values += n;
    }
  }
}

}  // namespace sharpwave
