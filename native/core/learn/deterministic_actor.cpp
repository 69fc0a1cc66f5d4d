#include "core/learn/deterministic_actor.hpp"

#include <algorithm>

#include "core/isa/kernels.hpp"
#include "core/learn/noise.hpp"

namespace sharpwave {
DeterministicActor::DeterministicActor(std::size_t n_obs, std::size_t n_actions,
                                       const std::vector<std::size_t>& hidden,
                                       Activation activation)
    : network_(layer_sizes(n_obs, hidden, n_actions), activation) {}

const Matrix& DeterministicActor::forward(const float* parameters, const float* obs, std::size_t n,
                                          DeterministicPass* pass) const {
  const Matrix& output = network_.forward(parameters, obs, n, &pass->memory);
  pass->actions.reshape(n, n_actions());
  std::copy_n(output.data(), output.size(), pass->actions.data());
  kernels().replay.tanh(pass->actions.data(), pass->actions.size());
  return pass->actions;
}

void DeterministicActor::backward(const float* parameters, const float* obs, std::size_t n,
                                  const float* action_grad, float* gradient, bool add,
                                  DeterministicPass* pass) const {
  pass->output_grad.reshape(n, n_actions());
  std::copy_n(action_grad, n * n_actions(), pass->output_grad.data());
  kernels().learn.activation_backwards[index_of(Activation::tanh)](
      pass->output_grad.data(), pass->actions.data(), n * n_actions());
  network_.backward(parameters, obs, n, pass->output_grad.data(), {gradient, add, nullptr},
                    &pass->memory);
}

void DeterministicActor::explore(const float* parameters, const float* obs, std::size_t n,
                                 float deviation, const Philox& random, DeterministicPass* pass,
                                 float* actions) const {
  const Matrix& best = forward(parameters, obs, n, pass);
  std::fill_n(actions, best.size(), 0.0f);
  if (deviation > 0.0f) draw_normals(random, 0, 0, best.size(), actions);
  for (std::size_t i = 0; i < best.size(); ++i) {
    actions[i] = std::clamp(best.data()[i] + deviation * actions[i], -1.0f, 1.0f);
  }
}

}  // namespace sharpwave
