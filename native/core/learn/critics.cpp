#include "core/learn/critics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

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

void Critics::for_passes(std::size_t n, Team& team,
                         const std::function<void(std::size_t, std::size_t)>& body) const {
  const std::size_t n_lanes = lanes_.count();
  if (team.size() <= n) {
    team.run(n, [&](std::size_t critic) {
      for (std::size_t lane = 0; lane < n_lanes; ++lane) body(critic, lane);
    });
  } else {
    team.run(n * n_lanes, [&](std::size_t task) { body(task / n_lanes, task % n_lanes); });
  }
}

const Matrix& Critics::forward(const float* parameters, const Matrix& x, std::size_t n,
                               Team& team) {
  split(x.n_rows());
  values_.reshape(n, x.n_rows());
  for_passes(n, team, [&](std::size_t critic, std::size_t lane) {
    const std::size_t first = lanes_.first(lane);
    const Matrix& output = networks_[critic].forward(parameters, x.row(first), lanes_.size(lane),
                                                     &pass(critic, lane).memory);
    std::copy_n(output.data(), output.size(), values_.row(critic) + first);
  });
  return values_;
}

double Critics::regress(const float* parameters, const Matrix& x, const float* wanted,
                        const ReplayRows& rows, float scale, LaneGradients* gradient,
                        float* error_sizes, Team& team) {
  split(rows.n);
  values_.reshape(n(), rows.n);
  losses_.resize(n() * lanes_.count());
  const bool in_order = team.size() <= n();
  gradient->begin(lanes_.count(), in_order);
  const float share = 2.0f * scale / static_cast<float>(rows.n);
  for_passes(n(), team, [&](std::size_t critic, std::size_t lane) {
    const std::size_t first = lanes_.first(lane), size = lanes_.size(lane);
    const Mlp& network = networks_[critic];
    Pass& own = pass(critic, in_order ? 0 : lane);
    const Matrix& output = network.forward(parameters, x.row(first), size, &own.memory);
    own.grad.reshape(size, 1);
    double loss = 0.0;
    for (std::size_t i = 0; i < size; ++i) {
      const float error = output.data()[i] - wanted[first + i];
      const float slope = share * rows.weight(first + i) * error;
      loss += 0.5 * static_cast<double>(slope * error);
      own.grad.data()[i] = slope;
      values_.row(critic)[first + i] = error;
    }
    losses_[critic * lanes_.count() + lane] = loss;
    network.backward(parameters, x.row(first), size, own.grad.data(),
                     {gradient->lane(lane), gradient->adds(lane), nullptr}, &own.memory);
  });
  gradient->end(team);

  for (std::size_t row = 0; row < rows.n; ++row) {
    float sum = 0.0f;
    for (std::size_t critic = 0; critic < n(); ++critic) sum += std::abs(values_.row(critic)[row]);
    error_sizes[row] = sum / static_cast<float>(n());
  }
  return std::accumulate(losses_.begin(), losses_.end(), 0.0);
}

void Critics::input_gradient(const float* parameters, const std::vector<std::size_t>& which,
                             float slope, std::size_t first_input, Matrix* gradient, Team& team) {
  gradient->reshape(lanes_.n_rows(), n_inputs() - first_input);
  for_passes(n(), team, [&](std::size_t critic, std::size_t lane) {
    climb(parameters, which, slope, first_input, critic, lane, gradient);
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
