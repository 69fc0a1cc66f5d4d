#include "core/collect/column_actor.hpp"

#include <algorithm>

#include "core/learn/columns.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 64;  // rows that pass through a network at once

}  // namespace

void ColumnActor::act(const float* parameters, const float* obs, std::size_t n, const Draws& draws,
                      const Acted& acted) {
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    to_columns(obs + first * policy_.n_inputs(), policy_.n_inputs(), rows, &obs_);
    const Acted part = {.choices = acted.choices == nullptr ? nullptr : acted.choices + first,
                        .moves = acted.moves == nullptr ? nullptr : acted.moves + first,
                        .log_probs = acted.log_probs + first,
                        .values = acted.values == nullptr ? nullptr : acted.values + first};
    act_on_chunk(parameters, rows, {draws.random, draws.first_row + first}, part);
    if (part.values != nullptr) values_of_chunk(parameters, rows, part.values);
  }
}

void ColumnActor::act_on_chunk(const float* parameters, std::size_t n, const Draws& draws,
                               const Acted& acted) {
  const Head& head = policy_.head();
  const Matrix& columns =
      policy_.actor().forward_columns(parameters + policy_.actor_start(), obs_, &network_);
  output_.reshape(n, head.n_outputs());
  to_rows(columns, n, output_.data());
  actions_.reshape(1, whole_lanes(n));
  std::fill(actions_.data(), actions_.data() + actions_.size(), 0.0f);
  const HeadRows rows = {
      .n = n, .stride = whole_lanes(n), .actions = actions_.data(), .masks = nullptr};
  if (acted.choices == nullptr) {
    head.choose(rows, output_.data(), parameters, &draws, actions_.data());
    head.forward(rows, output_.data(), parameters, &head_);
    std::copy_n(actions_.data(), n, acted.moves);
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

void ColumnActor::values(const float* parameters, const float* obs, std::size_t n, float* values) {
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    to_columns(obs + first * policy_.n_inputs(), policy_.n_inputs(), rows, &obs_);
    values_of_chunk(parameters, rows, values + first);
  }
}

void ColumnActor::values_of_chunk(const float* parameters, std::size_t n, float* values) {
  const Matrix& columns =
      policy_.critic().forward_columns(parameters + policy_.critic_start(), obs_, &network_);
  std::copy_n(columns.data(), n, values);
}

}  // namespace sharpwave
