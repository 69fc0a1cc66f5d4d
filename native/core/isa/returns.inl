// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// Every function here is one linear recurrence, x[t] = x[t] + decay[t] * x[t + 1]. It is computed
// in three passes over a span small enough for the L1 cache: x and decay element by element, the
// recurrence, the results. The output arrays hold x and decay in between, so there is no scratch
// memory.

constexpr std::size_t kSpan = 512;

template <int kShift, typename T>
void compose_steps(Vector<T>& x, Vector<T>& decay) {
  if constexpr (kShift < static_cast<int>(Simd<T>::kWidth)) {
    const Vector<T> zero = {};
    x = x + decay * shift_lanes<kShift, T>(x, zero);
    decay = decay * shift_lanes<kShift, T>(decay, zero + T(1));
    compose_steps<2 * kShift, T>(x, decay);
  }
}

// The recurrence for one environment. A vector of steps is first composed inside itself
// (log2(width) steps), so that the chain of dependent operations is one multiplication and one
// addition per two vectors.
template <typename T>
void scan_back_one(T* x, const T* decay, std::size_t n, T next) {
  constexpr std::size_t kWidth = Simd<T>::kWidth;
  std::size_t t = n;
  for (; t >= 2 * kWidth; t -= 2 * kWidth) {
    Vector<T> late = load(x + t - kWidth), early = load(x + t - 2 * kWidth);
    Vector<T> late_decay = load(decay + t - kWidth), early_decay = load(decay + t - 2 * kWidth);
    compose_steps<1, T>(late, late_decay);
    compose_steps<1, T>(early, early_decay);
    const T both = early[0] + early_decay[0] * late[0];
    const T both_decay = early_decay[0] * late_decay[0];
    late = late + late_decay * next;
    early = early + early_decay * late[0];
    store(x + t - kWidth, late);
    store(x + t - 2 * kWidth, early);
    next = both + both_decay * next;
  }
  for (; t > 0; --t) {
    next = x[t - 1] + decay[t - 1] * next;
    x[t - 1] = next;
  }
}

// The recurrence over rows [begin, end) of n_envs columns; row `end` is read unless it is the last.
template <typename T>
void scan_back(T* x, const T* decay, std::size_t begin, std::size_t end, std::size_t n_steps,
               std::size_t n_envs) {
  if (n_envs == 1) {
    scan_back_one(x + begin, decay + begin, end - begin, end < n_steps ? x[end] : T(0));
    return;
  }
  for (std::size_t t = end < n_steps ? end : n_steps - 1; t-- > begin;) {
    T* __restrict row = x + t * n_envs;
    const T* __restrict next = row + n_envs;
    const T* __restrict row_decay = decay + t * n_envs;
    for (std::size_t i = 0; i < n_envs; ++i) row[i] = row[i] + row_decay[i] * next[i];
  }
}

// Calls body(begin, end, next) over element ranges inside rows [begin_row, end_row); next[i -
// begin] is the value after element i. The last row of a rollout without next_values is a range of
// its own.
template <typename T, typename Body>
void with_next_values(const Rollout<T>& in, std::size_t begin_row, std::size_t end_row,
                      Body&& body) {
  const std::size_t n = in.n_envs;
  if (in.next_values != nullptr) {
    body(begin_row * n, end_row * n, in.next_values + begin_row * n);
    return;
  }
  if (end_row == in.n_steps) {
    --end_row;
    body(end_row * n, (end_row + 1) * n, in.bootstrap);
  }
  body(begin_row * n, end_row * n, in.values + (begin_row + 1) * n);
}

// Calls body(alive, keep, cut), functions of an element i and a number x that return x times: 1
// unless terminated; 1 unless the trace ends; 1 where the trace ends by truncation alone. They
// select instead of multiplying where flags are flags, so that a NaN value after a terminal step
// has no effect.
template <typename T, typename Body>
void with_flags(const Rollout<T>& in, Body&& body) {
  if (in.dones != nullptr) {
    const T* __restrict dones = in.dones;
    const auto alive = [dones](std::size_t i, T x) { return (T(1) - dones[i]) * x; };
    body(alive, alive, [](std::size_t, T) { return T(0); });
    return;
  }
  const std::uint8_t* __restrict terminated = in.terminated;
  const auto alive = [terminated](std::size_t i, T x) { return terminated[i] ? T(0) : x; };
  if (in.truncated == nullptr) {
    body(alive, alive, [](std::size_t, T) { return T(0); });
    return;
  }
  const std::uint8_t* __restrict truncated = in.truncated;
  const auto keep = [=](std::size_t i, T x) { return (terminated[i] | truncated[i]) ? T(0) : x; };
  const auto cut = [=](std::size_t i, T x) {
    const bool only_truncated = (truncated[i] != 0) & (terminated[i] == 0);
    return only_truncated ? x : T(0);
  };
  body(alive, keep, cut);
}

template <typename T, typename Alive, typename Keep>
void gae_terms(const T* __restrict rewards, const T* __restrict values, const T* __restrict next,
               std::size_t begin, std::size_t end, T gamma, T trace, Alive alive, Keep keep,
               T* __restrict deltas, T* __restrict decays) {
  for (std::size_t i = begin; i < end; ++i) {
    deltas[i] = rewards[i] + alive(i, gamma * next[i - begin]) - values[i];
    decays[i] = keep(i, trace);
  }
}

template <typename T>
void add_values(const T* __restrict x, const T* __restrict values, std::size_t n,
                T* __restrict sums) {
  for (std::size_t i = 0; i < n; ++i) sums[i] = x[i] + values[i];
}

// What the trajectory kernel carries from a step to the one before.
template <typename T>
struct GaeCarry {
  T value;
  T advantage;
};

// GAE of n steps of one environment in a single pass (see scan_back_one): most calls are this one.
template <typename T>
GaeCarry<T> gae_trajectory(const T* rewards, const T* values, const T* dones, std::size_t n,
                           T gamma, T trace, GaeCarry<T> next, T* advantages, T* returns) {
  constexpr std::size_t kWidth = Simd<T>::kWidth;
  const auto one_step = [&](std::size_t t) {
    const T alive = T(1) - dones[t];
    const T delta = rewards[t] + gamma * alive * next.value - values[t];
    next = {values[t], delta + trace * alive * next.advantage};
    advantages[t] = next.advantage;
    returns[t] = next.advantage + values[t];
  };
  // The terms of kWidth steps, composed.
  const auto terms = [&](std::size_t t, Vector<T>& x, Vector<T>& decay) {
    const Vector<T> alive = T(1) - load(dones + t);
    x = multiply_add(gamma * alive, load(values + t + 1), load(rewards + t)) - load(values + t);
    decay = trace * alive;
    compose_steps<1, T>(x, decay);
  };
  std::size_t t = n;
  if (t > 0) one_step(--t);
  for (; t >= 2 * kWidth; t -= 2 * kWidth) {
    const std::size_t late_at = t - kWidth, early_at = t - 2 * kWidth;
    Vector<T> late, late_decay, early, early_decay;
    terms(late_at, late, late_decay);
    terms(early_at, early, early_decay);
    const T both = early[0] + early_decay[0] * late[0];
    const T both_decay = early_decay[0] * late_decay[0];
    late = late + late_decay * next.advantage;
    early = early + early_decay * late[0];
    store(advantages + late_at, late);
    store(advantages + early_at, early);
    store(returns + late_at, late + load(values + late_at));
    store(returns + early_at, early + load(values + early_at));
    next = {values[early_at], both + both_decay * next.advantage};
  }
  for (; t > 0; --t) one_step(t - 1);
  return next;
}

// The trajectory kernel where the ends are flags: they become numbers a span at a time.
template <typename T>
void gae_flagged_trajectory(const Rollout<T>& in, GaeCarry<T> next, T* advantages, T* returns) {
  T dones[kSpan];
  for (std::size_t end = in.n_steps; end > 0;) {
    const std::size_t begin = end > kSpan ? end - kSpan : 0;
    for (std::size_t i = begin; i < end; ++i) dones[i - begin] = in.terminated[i] ? T(1) : T(0);
    next = gae_trajectory(in.rewards + begin, in.values + begin, dones, end - begin, in.gamma,
                          in.gamma * in.lam, next, advantages + begin, returns + begin);
    end = begin;
  }
}

template <typename T>
void gae(const Rollout<T>& in, T* advantages, T* returns) {
  const std::size_t n = in.n_envs;
  if (in.n_steps == 0 || n == 0) return;
  if (n == 1 && in.next_values == nullptr && in.truncated == nullptr) {
    const GaeCarry<T> after = {in.bootstrap[0], 0};
    if (in.dones == nullptr) {
      gae_flagged_trajectory(in, after, advantages, returns);
    } else {
      gae_trajectory(in.rewards, in.values, in.dones, in.n_steps, in.gamma, in.gamma * in.lam,
                     after, advantages, returns);
    }
    return;
  }
  const std::size_t span = n < kSpan ? kSpan / n : 1;
  with_flags(in, [&](auto alive, auto keep, auto) {
    for (std::size_t end = in.n_steps; end > 0;) {
      const std::size_t begin = end > span ? end - span : 0;
      with_next_values(in, begin, end, [&](std::size_t first, std::size_t last, const T* next) {
        gae_terms(in.rewards, in.values, next, first, last, in.gamma, in.gamma * in.lam, alive,
                  keep, advantages, returns);
      });
      scan_back(advantages, returns, begin, end, in.n_steps, n);
      add_values(advantages + begin * n, in.values + begin * n, (end - begin) * n,
                 returns + begin * n);
      end = begin;
    }
  });
}

template <typename T>
T smaller(T a, T b) {
  return a < b ? a : b;
}

// rhos may be where the decays go.
template <typename T, typename Alive, typename Keep>
void vtrace_terms(const Rollout<T>& in, const VtraceWeights<T>& weights, const T* __restrict next,
                  std::size_t begin, std::size_t end, Alive alive, Keep keep, T* __restrict deltas,
                  T* __restrict rhos_then_decays) {
  const T* __restrict rewards = in.rewards;
  const T* __restrict values = in.values;
  const T gamma = in.gamma, trace = in.gamma * in.lam;
  const T rho_bar = weights.rho_bar, c_bar = weights.c_bar;
  for (std::size_t i = begin; i < end; ++i) {
    const T rho = rhos_then_decays[i];
    const T delta = rewards[i] + alive(i, gamma * next[i - begin]) - values[i];
    deltas[i] = smaller(rho, rho_bar) * delta;
    rhos_then_decays[i] = keep(i, trace * smaller(rho, c_bar));
  }
}

// `follows(i)` is the value that follows element i.
template <typename T, typename Follows>
void policy_gradient_advantages(const Rollout<T>& in, T rho_bar, std::size_t begin, std::size_t end,
                                Follows follows, T* __restrict rhos_then_out) {
  const T* __restrict rewards = in.rewards;
  const T* __restrict values = in.values;
  const T gamma = in.gamma;
  for (std::size_t i = begin; i < end; ++i) {
    rhos_then_out[i] =
        smaller(rhos_then_out[i], rho_bar) * (rewards[i] + gamma * follows(i) - values[i]);
  }
}

// Whole passes instead of spans: vs holds the corrections until the policy-gradient advantages of
// the step before have read them. pg_advantages holds exp(log_rhos) whenever a pass needs it.
template <typename T>
void vtrace(const Rollout<T>& in, const VtraceWeights<T>& weights, T* vs, T* pg_advantages) {
  if (in.n_steps == 0 || in.n_envs == 0) return;
  const std::size_t n = in.n_envs;
  const std::size_t size = in.n_steps * n;
  const std::size_t last_row = size - n;
  with_flags(in, [&](auto alive, auto keep, auto cut) {
    exp_array(weights.log_rhos, size, pg_advantages);
    with_next_values(in, 0, in.n_steps, [&](std::size_t first, std::size_t last, const T* next) {
      vtrace_terms(in, weights, next, first, last, alive, keep, vs, pg_advantages);
    });
    scan_back(vs, pg_advantages, 0, in.n_steps, in.n_steps, n);
    exp_array(weights.log_rhos, size, pg_advantages);
    with_next_values(in, 0, in.n_steps, [&](std::size_t first, std::size_t last, const T* next) {
      // What follows a step is vs of the next one; after a truncation and at the end, next_values.
      const T* __restrict next_value = next;
      const T* __restrict values_after = in.values + n;
      const T* __restrict corrections_after = vs + n;
      policy_gradient_advantages(
          in, weights.pg_rho_bar, first, smaller(last, last_row),
          [=](std::size_t i) {
            return keep(i, values_after[i] + corrections_after[i]) + cut(i, next_value[i - first]);
          },
          pg_advantages);
      policy_gradient_advantages(
          in, weights.pg_rho_bar, first > last_row ? first : last_row, last,
          [=](std::size_t i) { return alive(i, next_value[i - first]); }, pg_advantages);
    });
  });
  const T* __restrict values = in.values;
  for (std::size_t i = 0; i < size; ++i) vs[i] = values[i] + vs[i];
}

// n of the rollout's length or more: each return continues the next one.
template <typename T>
void episode_returns(const NStepInputs<T>& in, T* returns) {
  const std::size_t n_envs = in.n_envs;
  for (std::size_t t = in.n_steps; t-- > 0;) {
    const std::size_t row = t * n_envs;
    const bool rollout_ends = t + 1 == in.n_steps;
    for (std::size_t i = row; i < row + n_envs; ++i) {
      const bool ends = rollout_ends || (in.terminated[i] | in.truncated[i]) != 0;
      const T bootstrap = in.terminated[i] ? T(0) : in.next_values[i];
      returns[i] = in.rewards[i] + in.gamma * (ends ? bootstrap : returns[i + n_envs]);
    }
  }
}

// Returns [begin, end), built from their last rewards backwards: `offset` counts down from n - 1.
template <typename T>
void n_step_block(const NStepInputs<T>& in, std::size_t begin, std::size_t end,
                  T* __restrict returns) {
  const T* __restrict rewards = in.rewards;
  const T* __restrict next_values = in.next_values;
  const std::uint8_t* __restrict terminated = in.terminated;
  const std::uint8_t* __restrict truncated = in.truncated;
  const T gamma = in.gamma;
  const std::size_t size = in.n_steps * in.n_envs;
  const std::size_t last_row = size - in.n_envs;
  for (std::size_t offset = in.n; offset-- > 0;) {
    const std::size_t ahead = offset * in.n_envs;
    // Elements from `restart` on take their last step here: the window or the rollout ends.
    const std::size_t reach = size > ahead ? smaller(end, size - ahead) : begin;
    std::size_t restart = offset + 1 == in.n || last_row <= ahead ? 0 : last_row - ahead;
    restart = restart < begin ? begin : smaller(restart, reach);
    for (std::size_t i = begin; i < restart; ++i) {
      const std::size_t at = i + ahead;
      const T bootstrap = next_values[at];
      const T inside = (terminated[at] | truncated[at]) ? bootstrap : returns[i];
      returns[i] = rewards[at] + gamma * (terminated[at] ? T(0) : inside);
    }
    for (std::size_t i = restart; i < reach; ++i) {
      const T bootstrap = next_values[i + ahead];
      returns[i] = rewards[i + ahead] + gamma * (terminated[i + ahead] ? T(0) : bootstrap);
    }
  }
}

template <typename T>
void n_step_returns(const NStepInputs<T>& in, T* returns) {
  if (in.n >= in.n_steps) {
    episode_returns(in, returns);
    return;
  }
  const std::size_t size = in.n_steps * in.n_envs;
  for (std::size_t begin = 0; begin < size; begin += kSpan) {
    n_step_block(in, begin, smaller(begin + kSpan, size), returns);
  }
}

template <typename T>
void discounted_returns(const Rollout<T>& in, T* __restrict decay, T* __restrict returns) {
  const std::size_t n = in.n_envs;
  const std::size_t size = in.n_steps * n;
  if (size == 0) return;
  const T* __restrict rewards = in.rewards;
  const T gamma = in.gamma;
  with_flags(in, [&](auto alive, auto, auto) {
    for (std::size_t i = 0; i < size; ++i) {
      returns[i] = rewards[i];
      decay[i] = alive(i, gamma);
    }
  });
  for (std::size_t i = 0; i < n; ++i)
    returns[size - n + i] += decay[size - n + i] * in.bootstrap[i];
  scan_back(returns, decay, 0, in.n_steps, in.n_steps, n);
}
