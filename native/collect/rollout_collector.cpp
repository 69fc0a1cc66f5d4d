#include "collect/rollout_collector.hpp"

#include <algorithm>
#include <cmath>

namespace sharpwave {
namespace {

bool all_finite(const float* values, std::size_t n) {
  return std::all_of(values, values + n, [](float value) { return std::isfinite(value); });
}

}  // namespace

RolloutCollector::RolloutCollector(VectorEnv* env, PolicyActor* actor, ActionBounds bounds)
    : env_(*env),
      actor_(*actor),
      n_(env->size()),
      obs_size_(env->spec().obs_size),
      rewards_(n_),
      bounds_(bounds),
      clipped_(n_),
      final_obs_(n_ * obs_size_),
      last_obs_(n_ * obs_size_),
      last_values_(n_) {}

std::size_t RolloutCollector::collect(const float* parameters, RolloutDraws draws,
                                      std::size_t n_steps, const RolloutColumns& columns,
                                      const RolloutPlace& place, FinishedEpisodes* finished) {
  for (std::size_t t = 0; t < n_steps; ++t) {
    std::copy_n(place.obs, n_ * obs_size_, columns.obs + t * n_ * obs_size_);
    std::copy_n(place.starts, n_, columns.starts + t * n_);
    if (!act(parameters, draws, t, columns)) return t;
    step(t, columns, place, finished);
    value_truncated(parameters, t, columns);
  }
  // What a step led to is the next step's observation, but for truncated ones.
  actor_.values(parameters, place.obs, n_, last_values_.data());
  for (std::size_t t = 0; t < n_steps; ++t) {
    const float* next = t + 1 < n_steps ? columns.values + (t + 1) * n_ : last_values_.data();
    for (std::size_t i = 0; i < n_; ++i) {
      if (columns.truncated[t * n_ + i] == 0) columns.next_values[t * n_ + i] = next[i];
    }
  }
  return n_steps;
}

// False, before anything was stepped, for what is not finite.
bool RolloutCollector::act(const float* parameters, RolloutDraws draws, std::size_t t,
                           const RolloutColumns& columns) {
  const Acted acted = {.choices = columns.choices == nullptr ? nullptr : columns.choices + t * n_,
                       .moves = columns.moves == nullptr ? nullptr : columns.moves + t * n_,
                       .log_probs = columns.log_probs + t * n_,
                       .values = columns.values + t * n_};
  actor_.act(parameters, columns.obs + t * n_ * obs_size_, n_, nullptr,
             Draws{Philox(draws.seed, draws.first_call + t)}, acted);
  return all_finite(acted.log_probs, n_) && all_finite(acted.values, n_) &&
         (acted.moves == nullptr || all_finite(acted.moves, n_));
}

// What the environments get of the policy's actions.
const void* RolloutCollector::actions(std::size_t t, const RolloutColumns& columns) {
  if (columns.choices != nullptr) return columns.choices + t * n_;
  const float* moves = columns.moves + t * n_;
  for (std::size_t i = 0; i < n_; ++i) {
    clipped_[i] = std::min(std::max(moves[i], bounds_.low), bounds_.high);
  }
  return clipped_.data();
}

void RolloutCollector::step(std::size_t t, const RolloutColumns& columns, const RolloutPlace& place,
                            FinishedEpisodes* finished) {
  const std::size_t first = t * n_;
  std::uint8_t *terminated = columns.terminated + first, *truncated = columns.truncated + first;
  env_.step(actions(t, columns), {.obs = place.obs,
                                  .rewards = rewards_.data(),
                                  .terminated = terminated,
                                  .truncated = truncated,
                                  .final_obs = final_obs_.data()});
  for (std::size_t i = 0; i < n_; ++i) {
    columns.rewards[first + i] = static_cast<float>(rewards_[i]);
    place.returns[i] += rewards_[i];
    place.lengths[i] += 1;
    place.starts[i] = terminated[i] | truncated[i];
    if (place.starts[i] == 0) continue;
    finished->returns.push_back(place.returns[i]);
    finished->lengths.push_back(place.lengths[i]);
    place.returns[i] = 0;
    place.lengths[i] = 0;
  }
}

// An episode that was cut off goes on in value: that of its true last observation.
void RolloutCollector::value_truncated(const float* parameters, std::size_t t,
                                       const RolloutColumns& columns) {
  const std::uint8_t *terminated = columns.terminated + t * n_,
                     *truncated = columns.truncated + t * n_;
  const auto is_cut = [&](std::size_t i) { return truncated[i] != 0 && terminated[i] == 0; };
  std::size_t rows = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    if (!is_cut(i)) continue;
    std::copy_n(final_obs_.data() + i * obs_size_, obs_size_,
                last_obs_.data() + rows++ * obs_size_);
  }
  if (rows == 0) return;
  actor_.values(parameters, last_obs_.data(), rows, last_values_.data());
  rows = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    if (is_cut(i)) columns.next_values[t * n_ + i] = last_values_[rows++];
  }
}

}  // namespace sharpwave
