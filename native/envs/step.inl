// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).
//
// The loop around the dynamics: a vector of environments is loaded, stepped and stored.

// Action indices are small: as the low bits of 2**52 they become doubles by a subtraction.
inline V load_actions(const std::int64_t* actions) {
  Longs lanes;
  __builtin_memcpy(&lanes, actions, sizeof(lanes));
  return __builtin_bit_cast(V, lanes | 0x4330000000000000) - 0x1p52;
}
inline V load_actions(const float* actions) { return load_double(actions); }

template <typename Env>
using ActionOf = std::conditional_t<(Env::kSpec.n_actions > 0), std::int64_t, float>;

// Actions as columns, from rows of kColumns each.
template <std::size_t kColumns, typename Action>
void load_action_columns(const Action* rows, V* columns) {
  if constexpr (kColumns == 1) {
    columns[0] = load_actions(rows);
  } else {
    for (std::size_t j = 0; j < kColumns; ++j) {
      Action column[kWidth];
      for (std::size_t i = 0; i < kWidth; ++i) column[i] = rows[i * kColumns + j];
      columns[j] = load_actions(column);
    }
  }
}

template <std::size_t kColumns>
void store_rows(const V* columns, float* rows) {
  HalfFloats narrowed[kColumns];
  for (std::size_t j = 0; j < kColumns; ++j) narrowed[j] = narrow(columns[j]);
  for (std::size_t i = 0; i < kWidth; ++i) {
    for (std::size_t j = 0; j < kColumns; ++j) rows[i * kColumns + j] = narrowed[j][i];
  }
}

template <std::size_t kColumns>
void store_rows(const V* columns, double* rows) {
  if constexpr (kColumns == 1) {
    store(rows, columns[0]);
  } else {
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) rows[i * kColumns + j] = columns[j][i];
    }
  }
}

// Lanes of 0 or -1 as bytes of 0 or 1.
inline void store_flags(Longs mask, std::uint8_t* flags) {
  typedef std::int8_t Bytes __attribute__((vector_size(kWidth)));
  const Bytes bytes = __builtin_convertvector(mask, Bytes) & 1;
  __builtin_memcpy(flags, &bytes, sizeof(bytes));
}

// Moves a state on; where that ended an episode. An environment of one agent takes and gives single
// numbers.
template <typename Env>
Longs step_state(V* state, const V* actions, double option, V* rewards) {
  if constexpr (requires { Env::step(state, actions, option, rewards); }) {
    return Env::step(state, actions, option, rewards);
  } else {
    const Outcome outcome = Env::step(state, actions[0], option);
    rewards[0] = outcome.reward;
    return outcome.terminated;
  }
}

// What a step of `kWidth` environments takes and gives.
template <typename Action>
struct StepPointers {
  const Action* actions;
  float* obs;
  double* rewards;
  std::uint8_t *terminated, *truncated;
};

template <typename Env>
void step_vector(const EnvStates& states, const EnvRules& rules, std::size_t at,
                 const StepPointers<ActionOf<Env>>& io) {
  constexpr EnvSpec kSpec = Env::kSpec;
  V state[kSpec.variables], actions[kSpec.action_row()];
  V obs[kSpec.obs_row()], rewards[kSpec.n_agents];
  double* variables = states.variables + at;
  for (std::size_t j = 0; j < kSpec.variables; ++j) state[j] = load(variables + j * states.stride);
  load_action_columns<kSpec.action_row()>(io.actions, actions);
  const Longs terminated = step_state<Env>(state, actions, rules.option, rewards);
  for (std::size_t j = 0; j < kSpec.variables; ++j) store(variables + j * states.stride, state[j]);
  Env::observe(state, obs);
  store_rows<kSpec.obs_row()>(obs, io.obs);

  Longs steps;
  __builtin_memcpy(&steps, states.steps + at, sizeof(steps));
  steps = steps + 1;
  __builtin_memcpy(states.steps + at, &steps, sizeof(steps));
  for (std::size_t j = 0; j < kSpec.n_agents; ++j) {
    double* total = states.returns + at + j * states.stride;
    store(total, load(total) + rewards[j]);
  }
  store_rows<kSpec.n_agents>(rewards, io.rewards);
  store_flags(terminated, io.terminated);
  store_flags(steps >= rules.time_limit, io.truncated);
}

// The last environments, fewer than a vector: through memory of whole vectors.
template <typename Env>
void step_rest(const EnvStates& states, const EnvRules& rules, std::size_t at, std::size_t n,
               const StepPointers<ActionOf<Env>>& io) {
  constexpr EnvSpec kSpec = Env::kSpec;
  ActionOf<Env> actions[kWidth * kSpec.action_row()] = {};
  float obs[kWidth * kSpec.obs_row()];
  double rewards[kWidth * kSpec.n_agents];
  std::uint8_t terminated[kWidth], truncated[kWidth];
  __builtin_memcpy(actions, io.actions, n * kSpec.action_row() * sizeof(actions[0]));
  step_vector<Env>(states, rules, at, {actions, obs, rewards, terminated, truncated});
  __builtin_memcpy(io.obs, obs, n * kSpec.obs_row() * sizeof(float));
  __builtin_memcpy(io.rewards, rewards, n * kSpec.n_agents * sizeof(double));
  __builtin_memcpy(io.terminated, terminated, n);
  __builtin_memcpy(io.truncated, truncated, n);
  // Lanes without an environment stay where they are.
  const std::size_t bytes = (kWidth - n) * sizeof(double);
  for (std::size_t j = 0; j < kSpec.variables; ++j) {
    __builtin_memset(states.variables + j * states.stride + at + n, 0, bytes);
  }
  for (std::size_t j = 0; j < kSpec.n_agents; ++j) {
    __builtin_memset(states.returns + j * states.stride + at + n, 0, bytes);
  }
  __builtin_memset(states.steps + at + n, 0, bytes);
}

template <typename Env>
void step_envs(const EnvStates& states, const EnvRules& rules, std::size_t begin, std::size_t end,
               const EnvStep& step) {
  constexpr EnvSpec kSpec = Env::kSpec;
  const auto* actions = static_cast<const ActionOf<Env>*>(step.actions);
  for (std::size_t i = begin; i < end; i += kWidth) {
    const StepPointers<ActionOf<Env>> io = {
        actions + i * kSpec.action_row(), step.obs + i * kSpec.obs_row(),
        step.rewards + i * kSpec.n_agents, step.terminated + i, step.truncated + i};
    if (i + kWidth <= end) {
      step_vector<Env>(states, rules, i, io);
    } else {
      step_rest<Env>(states, rules, i, end - i, io);
    }
  }
}

template <typename Env>
void observe_envs(const EnvStates& states, std::size_t begin, std::size_t end, float* obs) {
  constexpr std::size_t kObs = Env::kSpec.obs_row();
  for (std::size_t i = begin; i < end; i += kWidth) {
    V state[Env::kSpec.variables], columns[kObs];
    for (std::size_t j = 0; j < Env::kSpec.variables; ++j) {
      state[j] = load(states.variables + j * states.stride + i);
    }
    Env::observe(state, columns);
    float rows[kWidth * kObs];
    store_rows<kObs>(columns, rows);
    const std::size_t n = end - i < kWidth ? end - i : kWidth;
    __builtin_memcpy(obs + i * kObs, rows, n * kObs * sizeof(float));
  }
}

template <typename Env>
constexpr EnvKernels env_kernels() {
  return {Env::kSpec, step_envs<Env>, observe_envs<Env>};
}

// Spread of 1 to kMostSpreadAgents agents, with discrete actions and then with continuous ones.
template <std::size_t... kLess>
constexpr EnvTable env_table_of(std::index_sequence<kLess...>) {
  return {{env_kernels<CartPole>(), env_kernels<Pendulum>(), env_kernels<Acrobot>(),
           env_kernels<MountainCar>(), env_kernels<MountainCarContinuous>()},
          {env_kernels<SimpleSpread<kLess + 1, false>>()...,
           env_kernels<SimpleSpread<kLess + 1, true>>()...},
          sin_cos_array};
}
