// Rollouts of a policy in native environments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/collect/collected.hpp"
#include "core/collect/column_actor.hpp"
#include "envs/vector_env.hpp"

namespace sharpwave {

struct RolloutOptions {
  std::size_t n_steps;
  float gamma, gae_lambda;
  std::uint64_t seed;       // of the actions
  std::size_t threads = 1;  // at most
  bool is_valued = true;    // has values, those that follow, advantages and returns
  bool has_agent_id = false;
  CriticView critic = CriticView::own;
  bool is_team_paid = false;  // every agent is paid the mean of all
};

// The policy gave NaN or inf.
class NotFiniteError : public std::domain_error {
 public:
  using std::domain_error::domain_error;
};

// What a policy looks at in some environments.
PolicyView view_of(const EnvSpec& spec, const RolloutOptions& options);

// Each thread takes some environments through all steps of a rollout. Random numbers are a function
// of the seed, the rollout's number, the step and the environment, and an environment's row passes
// through the networks alone, so a rollout does not depend on the number of threads.
class Rollouts {
 public:
  // The environments must be reset already, and reset themselves in the step that ends an episode.
  // `env` and `policy` outlive this. Throws std::invalid_argument where they do not fit together.
  Rollouts(VectorEnv* env, const Policy* policy, const RolloutOptions& options);

  const RolloutShape& shape() const { return shape_; }

  // How many rollouts were begun; the next one draws its numbers by it.
  std::uint64_t count() const { return count_; }
  void set_count(std::uint64_t count) { count_ = count; }

  // The next rollout, or null where `stops` became true meanwhile. Throws NotFiniteError.
  std::unique_ptr<CollectedRollout> collect(const ActingWeights& weights,
                                            const std::atomic<bool>& stops);

 private:
  struct Episode {
    std::size_t row;  // t * N + env
    std::int64_t length;
  };
  // What a thread needs for its environments.
  struct Range {
    Range(const Policy& policy, const PolicyView& view, std::size_t begin, std::size_t end);

    std::size_t begin, end;  // environments
    ColumnActor actor;
    std::vector<float> final_obs;
    std::vector<float> final_values;
    std::vector<Episode> episodes;
    std::vector<double> episode_returns;  // of each agent
    std::vector<float> episode_obs;       // their last observations
  };

  void collect_range(const ActingWeights& weights, const Philox& random,
                     const std::atomic<bool>& stops, Range* range, CollectedRollout* rollout);
  void act(const ActingWeights& weights, const Philox& random, std::size_t t, Range* range,
           CollectedRollout* rollout);
  void step(const ActingWeights& weights, std::size_t t, Range* range, CollectedRollout* rollout);
  void write_rewards(std::size_t row, const Range& range, CollectedRollout* rollout) const;
  void add_next_values(const ActingWeights& weights, std::size_t row, std::size_t n_cut,
                       Range* range, CollectedRollout* rollout);
  void add_advantages(CollectedRollout* rollout) const;
  void add_episodes(CollectedRollout* rollout) const;

  VectorEnv* env_;
  RolloutOptions options_;
  PolicyView view_;
  RolloutShape shape_;
  std::uint64_t count_ = 0;
  std::vector<std::unique_ptr<Range>> ranges_;
  // Of all environments, each thread in its part.
  std::vector<float> last_obs_, forces_, final_obs_, last_values_;
  std::vector<double> rewards_, episode_returns_;
  std::vector<std::int64_t> episode_lengths_;
  std::vector<std::uint8_t> terminated_, truncated_, starts_;  // of environments
};

}  // namespace sharpwave
