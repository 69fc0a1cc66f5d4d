#include "core/learn/critics.hpp"

#include <algorithm>

namespace sharpwave {

Critics::Critics(std::size_t n, std::size_t n_inputs, const std::vector<std::size_t>& hidden,
                 Activation activation) {
  for (std::size_t i = 0; i < n; ++i) {
    networks_.push_back(Mlp::stacked(layer_sizes(n_inputs, hidden, 1), activation, n, i));
  }
}

void Critics::split(std::size_t n_rows) {
  lanes_ = Lanes(n_rows);
  if (passes_.size() < n() * lanes_.count()) passes_.resize(n() * lanes_.count());
}

const Matrix& Critics::forward(const float* parameters, const Matrix& x, std::size_t n,
                               Team& team) {
  split(x.n_rows());
  values_.reshape(n, x.n_rows());
  team.run(n * lanes_.count(), [&](std::size_t task) {
    const std::size_t critic = task % n, lane = task / n, first = lanes_.first(lane);
    const Matrix& output = networks_[critic].forward(parameters, x.row(first), lanes_.size(lane),
                                                     &pass(critic, lane).memory);
    std::copy_n(output.data(), output.size(), values_.row(critic) + first);
  });
  return values_;
}

double Critics::regress(const float* parameters, const Matrix& x, const float* wanted,
                        const ReplayRows& rows, float scale, LaneGradients* gradient,
                        float* mean_errors, Team& team) {
  split(rows.n);
  values_.reshape(n(), rows.n);
  gradient->set_lanes(lanes_.count());
  const float share = 2.0f * scale / static_cast<float>(rows.n);
  team.run(n() * lanes_.count(), [&](std::size_t task) {
    const std::size_t critic = task % n(), lane = task / n();
    const std::size_t first = lanes_.first(lane), size = lanes_.size(lane);
    const Mlp& network = networks_[critic];
    Pass& own = pass(critic, lane);
    const Matrix& output = network.forward(parameters, x.row(first), size, &own.memory);
    own.grad.reshape(size, 1);
    own.loss = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
      const float error = output.data()[i] - wanted[first + i];
      const float slope = share * rows.weight(first + i) * error;
      own.loss += 0.5 * static_cast<double>(slope * error);
      own.grad.data()[i] = slope;
      values_.row(critic)[first + i] = error;
    }
    network.backward(parameters, x.row(first), size, own.grad.data(),
                     {gradient->lane(lane), false, nullptr}, &own.memory);
  });
  gradient->add_up(team);

  for (std::size_t row = 0; row < rows.n; ++row) {
    float sum = 0.0f;
    for (std::size_t critic = 0; critic < n(); ++critic) sum += values_.row(critic)[row];
    mean_errors[row] = sum / static_cast<float>(n());
  }
  double loss = 0.0;
  for (std::size_t i = 0; i < n() * lanes_.count(); ++i) loss += passes_[i].loss;
  return loss;
}

void Critics::input_gradient(const float* parameters, const std::vector<std::size_t>& which,
                             float slope, std::size_t first_input, Matrix* gradient, Team& team) {
  gradient->reshape(lanes_.n_rows(), n_inputs() - first_input);
  team.run(n() * lanes_.count(), [&](std::size_t task) {
    climb(parameters, which, slope, first_input, task % n(), task / n(), gradient);
  });
}

void Critics::climb(const float* parameters, const std::vector<std::size_t>& which, float slope,
                    std::size_t first_input, std::size_t critic, std::size_t lane,
                    Matrix* gradient) {
  const std::size_t first = lanes_.first(lane);
  const Mlp& network = networks_[critic];
  Pass& own = pass(critic, lane);
  own.rows.clear();
  for (std::size_t i = 0; i < lanes_.size(lane); ++i) {
    if (which[first + i] == critic) own.rows.push_back(i);
  }
  const std::size_t n = own.rows.size();
  if (n == 0) return;
  // The others have no part in the sum.
  if (n < lanes_.size(lane)) network.keep_rows(own.rows.data(), n, &own.memory);
  own.grad.reshape(n, 1);
  std::fill_n(own.grad.data(), n, slope);
  own.inputs.reshape(n, gradient->n_columns());
  network.backward(parameters, nullptr, n, own.grad.data(),
                   {nullptr, false, own.inputs.data(), first_input}, &own.memory);
  for (std::size_t i = 0; i < n; ++i) {
    std::copy_n(own.inputs.row(i), gradient->n_columns(), gradient->row(first + own.rows[i]));
  }
}

void join_rows(const float* left, std::size_t n_left, const float* right, std::size_t n_right,
               std::size_t n, float* joined) {
  for (std::size_t row = 0; row < n; ++row, joined += n_left + n_right) {
    std::copy_n(left + row * n_left, n_left, joined);
    std::copy_n(right + row * n_right, n_right, joined + n_left);
  }
}

void find_least(const Matrix& values, float* least, std::vector<std::size_t>* which) {
  which->assign(values.n_columns(), 0);
  std::copy_n(values.row(0), values.n_columns(), least);
  for (std::size_t critic = 1; critic < values.n_rows(); ++critic) {
    const float* own = values.row(critic);
    for (std::size_t row = 0; row < values.n_columns(); ++row) {
      if (!(own[row] >= least[row]) && least[row] == least[row]) {  // NaN is the least
        least[row] = own[row];
        (*which)[row] = critic;
      }
    }
  }
}

}  // namespace sharpwave
