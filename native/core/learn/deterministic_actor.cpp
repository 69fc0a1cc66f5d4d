#include "core/learn/deterministic_actor.hpp"

#include <algorithm>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

std::vector<std::size_t> sizes_of(std::size_t n_obs, const std::vector<std::size_t>& hidden,
                                  std::size_t n_actions) {
  std::vector<std::size_t> sizes{n_obs};
  sizes.insert(sizes.end(), hidden.begin(), hidden.end());
  sizes.push_back(n_actions);
  return sizes;
}

}  // namespace

DeterministicActor::DeterministicActor(std::size_t n_obs, std::size_t n_actions,
                                       const std::vector<std::size_t>& hidden,
                                       Activation activation)
    : network_(sizes_of(n_obs, hidden, n_actions), activation) {}

const Matrix& DeterministicActor::forward(const float* parameters, const float* obs, std::size_t n,
                                          DeterministicPass* pass) const {
  const Matrix& output = network_.forward(parameters, obs, n, &pass->memory);
  pass->actions.reshape(n, n_actions());
  std::copy_n(output.data(), output.size(), pass->actions.data());
  kernels().replay.tanh(pass->actions.data(), pass->actions.size());
  return pass->actions;
}

void DeterministicActor::backward(const float* parameters, const float* obs, std::size_t n,
                                  const float* action_grad, float* gradient,
                                  DeterministicPass* pass) const {
  pass->output_grad.reshape(n, n_actions());
  std::copy_n(action_grad, n * n_actions(), pass->output_grad.data());
  kernels().learn.tanh_backward(pass->output_grad.data(), pass->actions.data(), n * n_actions());
  network_.backward(parameters, obs, n, pass->output_grad.data(), {gradient, false, nullptr},
                    &pass->memory);
}

}  // namespace sharpwave
