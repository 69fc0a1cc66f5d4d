#include "core/learn/policy_actor.hpp"

#include <algorithm>

#include "core/learn/columns.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 128;  // rows that pass through a network at once

}  // namespace

void PolicyActor::act(const float* parameters, const float* obs, std::size_t n,
                      const std::uint8_t* masks, std::optional<Draws> draws, const Acted& acted) {
  const std::size_t n_actions = policy_.head().n_actions();
  for (std::size_t first = 0; first < n; first += kChunk) {
    const Acted part = {
        .choices = acted.choices == nullptr ? nullptr : acted.choices + first * n_actions,
        .moves = acted.moves == nullptr ? nullptr : acted.moves + first * n_actions,
        .log_probs = acted.log_probs + first,
        .values = nullptr};
    const std::uint8_t* allowed =
        masks == nullptr ? nullptr : masks + first * policy_.head().n_outputs();
    act_on_chunk(parameters, obs + first * policy_.n_inputs(), std::min(kChunk, n - first), allowed,
                 draws ? &*draws : nullptr, part);
    if (draws) draws->first_row += kChunk;
  }
  if (acted.values != nullptr) values(parameters, obs, n, acted.values);
}

void PolicyActor::act_on_chunk(const float* parameters, const float* obs, std::size_t n,
                               const std::uint8_t* masks, const Draws* draws, const Acted& acted) {
  const Head& head = policy_.head();
  const Matrix& output =
      policy_.actor().forward(parameters + policy_.actor_start(), obs, n, &network_);
  if (masks != nullptr) to_columns(masks, head.n_outputs(), n, &masks_);
  actions_.reshape(head.n_actions(), whole_lanes(n));
  std::fill(actions_.data(), actions_.data() + actions_.size(), 0.0f);
  const HeadRows rows = {.n = n,
                         .stride = whole_lanes(n),
                         .actions = actions_.data(),
                         .masks = masks == nullptr ? nullptr : masks_.data()};
  head.choose(rows, output.data(), parameters, draws, actions_.data());
  // From the rounded action, which is what is stored and evaluated.
  head.forward(rows, output.data(), parameters, &head_);
  if (acted.choices != nullptr) {
    to_rows(actions_, n, acted.choices);
  } else {
    to_rows(actions_, n, acted.moves);
  }
  std::copy_n(head_.log_prob.data(), n, acted.log_probs);
}

void PolicyActor::values(const float* parameters, const float* inputs, std::size_t n,
                         float* values) {
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    const Matrix& output =
        policy_.critic().forward(parameters + policy_.critic_start(),
                                 inputs + first * policy_.n_critic_inputs(), rows, &network_);
    std::copy_n(output.data(), rows, values + first);
  }
}

}  // namespace sharpwave
