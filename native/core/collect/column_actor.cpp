#include "core/collect/column_actor.hpp"

#include <algorithm>

#include "core/learn/columns.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 64;  // rows that pass through a network at once

}  // namespace

void ColumnActor::act(const ActingWeights& weights, const float* obs, std::size_t n,
                      const Draws& draws, const Acted& acted) {
  const std::size_t n_actions = policy_.head().n_actions();
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    view_.actor_columns(obs, first, rows, &inputs_);
    const Acted part = {.choices = acted.choices == nullptr ? nullptr : acted.choices + first,
                        .moves = acted.moves == nullptr ? nullptr : acted.moves + first * n_actions,
                        .log_probs = acted.log_probs + first,
                        .values = nullptr};
    act_on_chunk(weights.parameters, rows, {draws.random, draws.first_row + first}, part);
    if (acted.values != nullptr && view_.critic == CriticView::own) {
      values_of_chunk(weights, rows, acted.values + first);
    }
  }
  if (acted.values != nullptr && view_.critic != CriticView::own) {
    values(weights, obs, n, acted.values);
  }
}

void ColumnActor::act_on_chunk(const float* parameters, std::size_t n, const Draws& draws,
                               const Acted& acted) {
  const Head& head = policy_.head();
  const Matrix& columns =
      policy_.actor().forward_columns(parameters + policy_.actor_start(), inputs_, &network_);
  output_.reshape(n, head.n_outputs());
  to_rows(columns, n, output_.data());
  actions_.reshape(head.n_actions(), whole_lanes(n));
  std::fill(actions_.data(), actions_.data() + actions_.size(), 0.0f);
  const HeadRows rows = {
      .n = n, .stride = whole_lanes(n), .actions = actions_.data(), .masks = nullptr};
  if (acted.choices == nullptr) {
    head.choose(rows, output_.data(), parameters, &draws, actions_.data());
    head.forward(rows, output_.data(), parameters, &head_);
    to_rows(actions_, n, acted.moves);
    std::copy_n(head_.log_prob.data(), n, acted.log_probs);
  } else {
    head.forward(rows, output_.data(), parameters, &head_);
    choose(n, draws, acted);
  }
}

// Draws from the probabilities that forward() of the head left behind.
void ColumnActor::choose(std::size_t n, const Draws& draws, const Acted& acted) const {
  const std::size_t n_options = policy_.head().n_outputs();
  for (std::size_t row = 0; row < n; ++row) {
    double left = draws.random.unit(draws.first_row + row);
    std::size_t taken = 0;
    for (std::size_t option = 0; option < n_options; ++option) {
      const double share = head_.grads.row(option)[row];
      if (share > 0.0) taken = option;  // the last possible one, should rounding leave a rest
      if (left < share) break;
      left -= share;
    }
    acted.choices[row] = static_cast<std::int64_t>(taken);
    acted.log_probs[row] = head_.outputs.row(taken)[row];
  }
}

void ColumnActor::values(const ActingWeights& weights, const float* obs, std::size_t n,
                         float* values) {
  if (view_.critic == CriticView::joint) return joint_values(weights, obs, n, values);
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    if (view_.critic == CriticView::own) {
      view_.actor_columns(obs, first, rows, &inputs_);
    } else {
      view_.own_first_columns(obs, first, rows, &inputs_);
    }
    values_of_chunk(weights, rows, values + first);
  }
}

// One value for all agents of an environment.
void ColumnActor::joint_values(const ActingWeights& weights, const float* obs, std::size_t n,
                               float* values) {
  const std::size_t n_agents = view_.n_agents, n_envs = n / n_agents;
  float chunk[kChunk];
  for (std::size_t first = 0; first < n_envs; first += kChunk) {
    const std::size_t envs = std::min(kChunk, n_envs - first);
    to_columns(obs + first * view_.obs_row(), view_.obs_row(), envs, &inputs_);
    values_of_chunk(weights, envs, chunk);
    for (std::size_t i = 0; i < envs; ++i) {
      std::fill_n(values + (first + i) * n_agents, n_agents, chunk[i]);
    }
  }
}

void ColumnActor::values_of_chunk(const ActingWeights& weights, std::size_t n, float* values) {
  const Matrix& columns = policy_.critic().forward_columns(
      weights.parameters + policy_.critic_start(), inputs_, &network_);
  const float* data = columns.data();
  std::transform(data, data + n, values, [&](float x) { return weights.scale.denormalized(x); });
}

}  // namespace sharpwave
