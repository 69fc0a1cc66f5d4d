#include "core/learn/q_actor.hpp"

#include <algorithm>

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 128;  // rows that pass through the network at once

}  // namespace

void QActor::act(const float* parameters, const float* obs, std::size_t n,
                 const std::uint8_t* allowed, const std::optional<Exploration>& exploration,
                 std::int64_t* actions) {
  const auto explores = [&](std::size_t row) {
    return exploration && exploration->random.unit(row) < exploration->epsilon;
  };
  const std::size_t n_choices = network_.choices().size();
  std::size_t n_exploring = 0;
  for (std::size_t row = 0; row < n; ++row) n_exploring += explores(row);
  if (n_exploring < n) act_best(parameters, obs, n, allowed, actions);
  for (std::size_t row = 0; n_exploring > 0 && row < n; ++row) {
    if (!explores(row)) continue;
    draw(exploration->random, row,
         allowed == nullptr ? nullptr : allowed + row * network_.n_options(),
         actions + row * n_choices);
  }
}

void QActor::act_best(const float* parameters, const float* obs, std::size_t n,
                      const std::uint8_t* allowed, std::int64_t* actions) {
  const std::vector<std::size_t>& choices = network_.choices();
  options_.resize(choices.size());
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t rows = std::min(kChunk, n - first);
    const Matrix& values =
        network_.forward(parameters, obs + first * network_.n_inputs(), rows, &memory_);
    for (std::size_t i = 0; i < rows; ++i) {
      network_.choose(values.row(i), allowed, options_.data());
      if (allowed != nullptr) allowed += network_.n_options();
      std::size_t start = 0;
      for (std::size_t choice = 0; choice < choices.size(); start += choices[choice++]) {
        *actions++ = static_cast<std::int64_t>(options_[choice] - start);
      }
    }
  }
}

void QActor::draw(const Philox& random, std::size_t row, const std::uint8_t* allowed,
                  std::int64_t* actions) const {
  std::uint32_t attempt = 1;  // 0 has decided that there is something to draw
  for (const std::size_t n : network_.choices()) {
    const auto is_allowed = [&](std::size_t i) { return allowed == nullptr || allowed[i] != 0; };
    std::size_t n_allowed = 0, action = 0;
    for (std::size_t i = 0; i < n; ++i) n_allowed += is_allowed(i);
    std::uint64_t left = random.below(n_allowed, row, attempt++);
    while (action + 1 < n && (!is_allowed(action) || left-- > 0)) ++action;
    *actions++ = static_cast<std::int64_t>(action);
    if (allowed != nullptr) allowed += n;
  }
}

}  // namespace sharpwave
