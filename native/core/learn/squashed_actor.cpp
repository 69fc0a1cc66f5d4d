#include "core/learn/squashed_actor.hpp"

#include <algorithm>
#include <cmath>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

constexpr float kLowestLogStd = -20.0f, kHighestLogStd = 2.0f;

std::size_t with_room(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

}  // namespace

SquashedActor::SquashedActor(std::size_t n_obs, std::size_t n_actions,
                             const std::vector<std::size_t>& hidden, Activation activation)
    : n_actions_(n_actions), network_(layer_sizes(n_obs, hidden, 2 * n_actions), activation) {}

float* SquashedActor::noise_of(std::size_t n, SquashedPass* pass) const {
  pass->noise.reshape(1, with_room(n * n_actions_));
  std::fill(pass->noise.data() + n * n_actions_, pass->noise.data() + pass->noise.size(), 0.0f);
  return pass->noise.data();
}

void SquashedActor::sample(const float* parameters, const float* obs, std::size_t n,
                           SquashedPass* pass, float* log_probs) const {
  const Matrix& output = network_.forward(parameters, obs, n, &pass->memory);
  const std::size_t d = n_actions_, size = with_room(n * d);
  for (Matrix* matrix :
       {&pass->mean, &pass->log_std, &pass->actions, &pass->spread, &pass->density}) {
    matrix->reshape(1, size);
  }
  for (std::size_t i = 0; i < n; ++i) {
    std::copy_n(output.row(i), d, pass->mean.data() + i * d);
    std::copy_n(output.row(i) + d, d, pass->log_std.data() + i * d);
  }
  std::fill(pass->mean.data() + n * d, pass->mean.data() + size, 0.0f);
  std::fill(pass->log_std.data() + n * d, pass->log_std.data() + size, 0.0f);
  const Squashed squashed = {pass->mean.data(),    pass->log_std.data(), pass->noise.data(),
                             pass->actions.data(), pass->spread.data(),  pass->density.data()};
  kernels().replay.squash(squashed, kLowestLogStd, kHighestLogStd, size);
  for (std::size_t i = 0; i < n; ++i) {
    float sum = 0.0f;
    for (std::size_t j = 0; j < d; ++j) sum += pass->density.data()[i * d + j];
    log_probs[i] = sum;
  }
}

void SquashedActor::backward(const float* parameters, const float* obs, std::size_t n,
                             const float* action_grad, float share, float* gradient, bool add,
                             SquashedPass* pass) const {
  const std::size_t d = n_actions_;
  const Matrix& output = pass->memory.outputs.back();
  pass->output_grad.reshape(n, 2 * d);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < d; ++j) {
      // a = tanh u: da/du = 1 - a^2, and -log(1 - a^2) has the slope 2 a.
      const std::size_t at = i * d + j;
      const float a = pass->actions.data()[at];
      const float by_raw = action_grad[at] * (1.0f - a * a) + 2.0f * a * share;
      const bool is_inside = output.row(i)[d + j] == pass->log_std.data()[at];
      pass->output_grad.row(i)[j] = by_raw;
      pass->output_grad.row(i)[d + j] = is_inside ? by_raw * pass->spread.data()[at] - share : 0.0f;
    }
  }
  network_.backward(parameters, obs, n, pass->output_grad.data(), {gradient, add, nullptr},
                    &pass->memory);
}

void SquashedActor::act(const float* parameters, const float* obs, std::size_t n,
                        SquashedPass* pass, float* actions) const {
  const Matrix& output = network_.forward(parameters, obs, n, &pass->memory);
  for (std::size_t i = 0; i < n; ++i)
    std::copy_n(output.row(i), n_actions_, actions + i * n_actions_);
  kernels().replay.tanh(actions, n * n_actions_);
}

void SquashedActor::explore(const float* parameters, const float* obs, std::size_t n,
                            const Philox& random, SquashedPass* pass, float* actions) const {
  const Matrix& output = network_.forward(parameters, obs, n, &pass->memory);
  draw_normals(random, 0, 0, n * n_actions_, noise_of(n, pass));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n_actions_; ++j) {
      const float log_std =
          std::clamp(output.row(i)[n_actions_ + j], kLowestLogStd, kHighestLogStd);
      const float noise = pass->noise.data()[i * n_actions_ + j];
      actions[i * n_actions_ + j] = output.row(i)[j] + std::exp(log_std) * noise;
    }
  }
  kernels().replay.tanh(actions, n * n_actions_);
}

}  // namespace sharpwave
