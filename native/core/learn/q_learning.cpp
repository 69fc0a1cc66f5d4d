#include "core/learn/q_learning.hpp"

#include <algorithm>
#include <cmath>

#include "core/isa/kernels.hpp"
#include "core/learn/blocks.hpp"

namespace sharpwave {

QMetrics QLearning::compute(const QRows& rows, const QOptions& options, float* td_errors,
                            Team& team) {
  const Lanes split(rows.n);
  const std::size_t n_inputs = network_.n_inputs();
  if (lanes_.size() < split.count()) lanes_.resize(split.count());
  gradients_.begin(split.count(), team.size() == 1);
  const std::size_t passes = options.is_double ? 3 : 2;
  team.run(passes * split.count(), [&](std::size_t task) {
    const std::size_t i = task / passes, first = split.first(i), n = split.size(i);
    const float* obs = rows.obs + first * n_inputs;
    const float* next_obs = rows.next_obs + first * n_inputs;
    Lane& lane = lanes_[i];
    if (task % passes == 0) network_.forward(online_, obs, n, &lane.online);
    if (task % passes == 1) network_.forward(target_, next_obs, n, &lane.target);
    if (task % passes == 2) network_.forward(online_, next_obs, n, &lane.chooser);
  });
  const auto learn = [&](std::size_t i, Team* helpers) {
    differentiate(rows, split.first(i), split.size(i), options, td_errors, &lanes_[i]);
    network_.backward(online_, rows.obs + split.first(i) * n_inputs, split.size(i),
                      lanes_[i].grad.data(), gradients_.lane(i), gradients_.adds(i),
                      &lanes_[i].online, helpers);
  };
  if (split.count() == 1) {
    learn(0, &team);
  } else {
    team.run(split.count(), [&](std::size_t i) { learn(i, nullptr); });
  }
  gradients_.end(team);
  QMetrics metrics;
  const double share = 1.0 / static_cast<double>(rows.n);
  for (std::size_t i = 0; i < split.count(); ++i) {
    metrics.loss += share * lanes_[i].loss;
    metrics.q_value += share * lanes_[i].q_value;
    metrics.td_error += share * lanes_[i].td_error;
  }
  return metrics;
}

void QLearning::differentiate(const QRows& rows, std::size_t first, std::size_t n,
                              const QOptions& options, float* td_errors, Lane* lane) const {
  const std::vector<std::size_t>& choices = network_.choices();
  const std::size_t n_choices = choices.size(), n_options = network_.n_options();
  const Matrix& values = network_.values(lane->online);
  const Matrix& next_values = network_.values(lane->target);
  const Matrix& chooser = options.is_double ? network_.values(lane->chooser) : next_values;
  const float share = 1.0f / static_cast<float>(n_choices * rows.n);
  lane->options.resize(n_choices);
  lane->grad.reshape(n, n_options);
  std::fill_n(lane->grad.data(), lane->grad.size(), 0.0f);
  lane->loss = lane->q_value = lane->td_error = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t row = first + i;
    const std::uint8_t* allowed =
        rows.next_allowed == nullptr ? nullptr : rows.next_allowed + row * n_options;
    network_.choose(chooser.row(i), allowed, lane->options.data());
    const float next_value = mean_of(next_values.row(i), lane->options);
    const float wanted = rows.rewards[row] + rows.discounts[row] * next_value;

    std::size_t start = 0;
    for (std::size_t choice = 0; choice < n_choices; start += choices[choice++]) {
      const std::int64_t action = rows.actions[row * n_choices + choice];
      lane->options[choice] = start + static_cast<std::size_t>(action);
    }
    const float value = mean_of(values.row(i), lane->options);
    const float error = value - wanted;
    const float slope = options.is_huber ? std::clamp(error, -1.0f, 1.0f) : 2.0f * error;
    const float loss = options.is_huber ? slope * (error - 0.5f * slope) : error * error;
    const float weight = rows.weight(row);
    for (const std::size_t option : lane->options) {
      lane->grad.row(i)[option] = slope * weight * share;
    }
    td_errors[row] = error;
    lane->loss += static_cast<double>(loss * weight);
    lane->q_value += static_cast<double>(value);
    lane->td_error += static_cast<double>(std::abs(error));
  }
}

float QLearning::mean_of(const float* values, const std::vector<std::size_t>& options) const {
  float sum = 0.0f;
  for (const std::size_t option : options) sum += values[option];
  return sum / static_cast<float>(options.size());
}

QMetrics QLearning::step(const QRows& rows, const QOptions& options, Adam* optimizer,
                         float* td_errors, Team& team) {
  const std::size_t n = network_.n_parameters();
  QMetrics metrics = compute(rows, options, td_errors, team);
  metrics.grad_norm = clip_norm(gradient_, n, options.max_grad_norm, team);
  descend(online_, gradient_, n, optimizer, team);
  if (options.tau < 1.0f) follow(target_, online_, n, options.tau, team);
  return metrics;
}

}  // namespace sharpwave
