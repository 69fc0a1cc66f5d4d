// The environments as functions over many of them at once, compiled per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "envs/env_spec.hpp"

namespace sharpwave {

// States are padded with zeros to a whole number of the widest vectors.
constexpr std::size_t kEnvLanes = 8;

// n environments, one array for each variable of the state and for each agent's return.
struct EnvStates {
  double* variables;    // variable j begins at j * stride
  double* returns;      // sum of the rewards of the episode in flight, of agent j at j * stride
  std::int64_t* steps;  // of that episode
  std::size_t stride;
};

struct EnvRules {
  std::int64_t time_limit;
  double option;  // the value of EnvSpec::option
};

// What a step takes and gives. Arrays of all n environments.
struct EnvStep {
  // [n, n_agents] int64 from 0 to n_actions - 1, or [n, n_agents, action_size] finite float
  const void* actions;
  float* obs;                // [n, n_agents, obs_size]
  double* rewards;           // [n, n_agents]
  std::uint8_t* terminated;  // [n], 0 or 1
  std::uint8_t* truncated;   // [n], 0 or 1
};

struct EnvKernels {
  EnvSpec spec;
  // Steps environments `begin` to `end` - 1; `begin` is a multiple of kEnvLanes.
  void (*step)(const EnvStates& states, const EnvRules& rules, std::size_t begin, std::size_t end,
               const EnvStep& step);
  // Writes their observations to `obs` [n, n_agents, obs_size].
  void (*observe)(const EnvStates& states, std::size_t begin, std::size_t end, float* obs);
};

constexpr std::size_t kEnvCount = 5;
constexpr std::size_t kMostSpreadAgents = 8;
constexpr std::size_t kMultiEnvCount = 2 * kMostSpreadAgents;

struct EnvTable {
  EnvKernels envs[kEnvCount];
  EnvKernels multi_envs[kMultiEnvCount];  // with several agents: one for each number of them
  // sin and cos of x [n], for tests.
  void (*sin_cos)(const double* x, std::size_t n, double* sin, double* cos);
};

}  // namespace sharpwave
