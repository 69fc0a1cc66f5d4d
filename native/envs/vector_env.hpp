// Many environments of one kind, stepped together without Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/memory.hpp"
#include "envs/env_kernels.hpp"

namespace sharpwave {

// What happens to an environment whose episode ended.
enum class Autoreset {
  same_step,  // it is reset in the same step; the last observation goes to `final_obs`
  next_step,  // its next step resets it and ignores the action
  disabled,   // it must be reset before the next step
};

struct VectorEnvOptions {
  std::int64_t time_limit;
  double option;  // the value of EnvSpec::option
  Autoreset autoreset = Autoreset::same_step;
  std::size_t threads = 0;  // at most; 0 for one on each core
};

// Bounds of the states that episodes start with, [variables] each.
struct StartBounds {
  const double* low;
  const double* high;
};

// Where the results of a step go.
struct StepOut {
  float* obs;                               // [n, n_agents, obs_size], to act on next
  double* rewards;                          // [n, n_agents]
  std::uint8_t* terminated;                 // [n], 0 or 1
  std::uint8_t* truncated;                  // [n], 0 or 1
  float* final_obs = nullptr;               // like obs, the rows of episodes that ended
  double* episode_returns = nullptr;        // [n, n_agents], where an episode ended
  std::int64_t* episode_lengths = nullptr;  // [n], where an episode ended
};

// The whole state, as arrays of the caller.
template <typename Double, typename Int, typename Unsigned, typename Byte>
struct VectorEnvArrays {
  Double* variables;  // [variables, n]
  Int* steps;         // [n] of the episode in flight
  Double* returns;    // [n_agents, n] of the episode in flight
  Unsigned* seeds;    // [n]
  Unsigned* resets;   // [n] drawn from the seed so far
  Byte* ended;        // [n], 1 where the last step was an episode's last and no reset came since
};
using SavedVectorEnv = VectorEnvArrays<double, std::int64_t, std::uint64_t, std::uint8_t>;
using GivenVectorEnv =
    VectorEnvArrays<const double, const std::int64_t, const std::uint64_t, const std::uint8_t>;

// Each environment draws its starts from a generator of its own: Philox keyed by its seed and by
// how many resets it had. What it does depends on its seed and actions alone, not on its
// neighbors, its place or the number of threads.
class VectorEnv {
 public:
  // Gymnasium's id and the functions behind it; throws std::invalid_argument for others.
  static const EnvKernels& find(const std::string& id);
  // The same of an environment with so many agents.
  static const EnvKernels& find_multi(const std::string& id, std::size_t n_agents);

  VectorEnv(const EnvKernels& kernels, std::size_t n, const VectorEnvOptions& options);

  const EnvSpec& spec() const { return kernels_->spec; }
  std::size_t size() const { return n_; }
  Autoreset autoreset() const { return options_.autoreset; }
  // Whether every environment was reset or restored.
  bool is_ready() const { return is_ready_; }
  // Environments that must be reset first (only where autoreset is disabled).
  std::size_t waiting() const { return waiting_; }
  double step_ns() const { return static_cast<double>(n_) * spec().step_ns; }

  // The bounds that Gymnasium has.
  StartBounds default_bounds() const;

  // The next reset of environment i begins this stream.
  void seed(std::size_t i, std::uint64_t seed);

  // Starts episodes, where `mask` [n] is not 0 or everywhere, and writes all observations [n,
  // n_agents, obs_size].
  void reset(const std::uint8_t* mask, const StartBounds& bounds, float* obs);

  // Steps all environments. Actions are those of EnvStep; the caller has checked them, is_ready()
  // and waiting().
  void step(const void* actions, const StepOut& out);

  // The same of environments `begin` to `end` - 1 alone, where `begin` is a multiple of kEnvLanes
  // and autoreset is same_step. Arrays are those of all n. Ranges may be stepped at the same time.
  void step_range(std::size_t begin, std::size_t end, const void* actions, const StepOut& out);

  // Writes all observations [n, n_agents, obs_size] and, to `is_first` [n], where they begin an
  // episode.
  void observe(float* obs, std::uint8_t* is_first) const;

  // The first number of all actions that an environment does not take; how many there are when all
  // are fine.
  std::size_t find_bad_action(const std::int64_t* actions) const;
  std::size_t find_bad_action(const float* actions) const;

  void save(const SavedVectorEnv& to) const;
  // Throws std::invalid_argument, and changes nothing, for what cannot be a state.
  void restore(const GivenVectorEnv& from);

 private:
  void start(std::size_t i, const StartBounds& bounds);
  void finish_range(std::size_t begin, std::size_t end, const StepOut& out);
  void observe_rows(const std::size_t* rows, std::size_t n, float* obs) const;
  template <typename Body>
  void for_ranges(const Body& body);

  const EnvKernels* kernels_;
  std::size_t n_;
  VectorEnvOptions options_;
  Memory memory_;
  EnvStates states_;
  std::uint64_t *seeds_, *resets_;
  std::uint8_t* ended_;
  bool is_ready_ = false;
  std::size_t waiting_ = 0;
};

}  // namespace sharpwave
