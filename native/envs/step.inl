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

template <std::size_t kColumns>
void store_rows(const V* columns, float* rows) {
  HalfFloats narrowed[kColumns];
  for (std::size_t j = 0; j < kColumns; ++j) narrowed[j] = narrow(columns[j]);
  for (std::size_t i = 0; i < kWidth; ++i) {
    for (std::size_t j = 0; j < kColumns; ++j) rows[i * kColumns + j] = narrowed[j][i];
  }
}

// Lanes of 0 or -1 as bytes of 0 or 1.
inline void store_flags(Longs mask, std::uint8_t* flags) {
  typedef std::int8_t Bytes __attribute__((vector_size(kWidth)));
  const Bytes bytes = __builtin_convertvector(mask, Bytes) & 1;
  __builtin_memcpy(flags, &bytes, sizeof(bytes));
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
  V state[Env::kSpec.variables], obs[Env::kSpec.obs_size];
  for (std::size_t j = 0; j < Env::kSpec.variables; ++j) state[j] = load(states.variables[j] + at);
  const Outcome outcome = Env::step(state, load_actions(io.actions), rules.option);
  for (std::size_t j = 0; j < Env::kSpec.variables; ++j) store(states.variables[j] + at, state[j]);
  Env::observe(state, obs);
  store_rows<Env::kSpec.obs_size>(obs, io.obs);

  Longs steps;
  __builtin_memcpy(&steps, states.steps + at, sizeof(steps));
  steps = steps + 1;
  __builtin_memcpy(states.steps + at, &steps, sizeof(steps));
  store(states.returns + at, load(states.returns + at) + outcome.reward);
  store(io.rewards, outcome.reward);
  store_flags(outcome.terminated, io.terminated);
  store_flags(steps >= rules.time_limit, io.truncated);
}

// The last environments, fewer than a vector: through memory of whole vectors.
template <typename Env>
void step_rest(const EnvStates& states, const EnvRules& rules, std::size_t at, std::size_t n,
               const StepPointers<ActionOf<Env>>& io) {
  constexpr std::size_t kObs = Env::kSpec.obs_size;
  ActionOf<Env> actions[kWidth] = {};
  float obs[kWidth * kObs];
  double rewards[kWidth];
  std::uint8_t terminated[kWidth], truncated[kWidth];
  __builtin_memcpy(actions, io.actions, n * sizeof(actions[0]));
  step_vector<Env>(states, rules, at, {actions, obs, rewards, terminated, truncated});
  __builtin_memcpy(io.obs, obs, n * kObs * sizeof(float));
  __builtin_memcpy(io.rewards, rewards, n * sizeof(double));
  __builtin_memcpy(io.terminated, terminated, n);
  __builtin_memcpy(io.truncated, truncated, n);
  // Lanes without an environment stay where they are.
  const std::size_t bytes = (kWidth - n) * sizeof(double);
  for (std::size_t j = 0; j < Env::kSpec.variables; ++j) {
    __builtin_memset(states.variables[j] + at + n, 0, bytes);
  }
  __builtin_memset(states.steps + at + n, 0, bytes);
  __builtin_memset(states.returns + at + n, 0, bytes);
}

template <typename Env>
void step_envs(const EnvStates& states, const EnvRules& rules, std::size_t begin, std::size_t end,
               const EnvStep& step) {
  const auto* actions = static_cast<const ActionOf<Env>*>(step.actions);
  for (std::size_t i = begin; i < end; i += kWidth) {
    const StepPointers<ActionOf<Env>> io = {actions + i, step.obs + i * Env::kSpec.obs_size,
                                            step.rewards + i, step.terminated + i,
                                            step.truncated + i};
    if (i + kWidth <= end) {
      step_vector<Env>(states, rules, i, io);
    } else {
      step_rest<Env>(states, rules, i, end - i, io);
    }
  }
}

template <typename Env>
void observe_envs(const EnvStates& states, std::size_t begin, std::size_t end, float* obs) {
  constexpr std::size_t kObs = Env::kSpec.obs_size;
  for (std::size_t i = begin; i < end; i += kWidth) {
    V state[Env::kSpec.variables], columns[kObs];
    for (std::size_t j = 0; j < Env::kSpec.variables; ++j) state[j] = load(states.variables[j] + i);
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
