// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// simple_spread_v3 of mpe2 1.1: N agents on a plane shall cover N landmarks and not bump into each
// other. Every agent is paid minus the distance of each landmark to the agent next to it, and -1
// for every agent that it touches, weighted by 1 - local_ratio and local_ratio.
//
// An agent pushes by 5 along an axis (actions 1 to 4: left, right, down, up), or by 5 times the
// differences of its numbers 2 and 1, 4 and 3, in float32. Agents closer than 0.3 repel each other
// by 100 times how deep they are in each other, softened over 0.001. A step of 0.1 moves positions
// by the velocities of before, which then lose a quarter and gain what the forces give.
//
// All is done in mpe2's order in float64, so that episodes are the same, and not alike.

// exp(y) and log(1 + exp(y)) are equal in double below, and the latter is y above.
constexpr double kFarFromContact = 40.0;

// numpy.logaddexp(0, y), by the functions it calls.
__attribute__((noinline)) double log_one_plus_exp(double y) {
  if (y > 0.0) return y + __builtin_log1p(__builtin_exp(-y));
  if (y < 0.0) return __builtin_log1p(__builtin_exp(y));
  return y == 0.0 ? 0.693147180559945309417232121458176568 : y;
}

inline V log_one_plus_exp(V y) {
  V sum = exp_of<double>(y);
  sum = y > kFarFromContact ? y : sum;
  const Longs near = (y >= -kFarFromContact) & (y <= kFarFromContact);
  if (any(near)) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      if (near[i] != 0) sum[i] = log_one_plus_exp(y[i]);
    }
  }
  return sum;
}

// Positions, velocities and landmarks, [kAgents, 2] each.
template <std::size_t kAgents>
struct SpreadBounds {
  double values[6 * kAgents];

  constexpr explicit SpreadBounds(double place) : values{} {
    for (std::size_t i = 0; i < 2 * kAgents; ++i) values[i] = values[4 * kAgents + i] = place;
  }
};

template <std::size_t kAgents, bool kIsContinuous>
struct SimpleSpread {
  static constexpr SpreadBounds<kAgents> kStartLow{-1.0};
  static constexpr SpreadBounds<kAgents> kStartHigh{1.0};
  static constexpr EnvSpec kSpec = {
      .id = kIsContinuous ? "simple_spread_v3-continuous" : "simple_spread_v3",
      .n_agents = kAgents,
      .variables = 6 * kAgents,
      .obs_size = 6 * kAgents,
      .n_actions = kIsContinuous ? 0 : 5,
      .action_size = kIsContinuous ? 5 : 1,
      .action_low = 0.0f,
      .action_high = kIsContinuous ? 1.0f : 0.0f,
      .time_limit = 25,
      .start_low = kStartLow.values,
      .start_high = kStartHigh.values,
      .start_in_float32 = false,
      .option = "local_ratio",
      .option_default = 0.5,
      .step_ns = 20.0 * kAgents + 4.0 * kAgents * kAgents};
  static constexpr std::size_t kVelocities = 2 * kAgents;
  static constexpr std::size_t kLandmarks = 4 * kAgents;
  static constexpr double kPush = 5.0;
  static constexpr double kTimeStep = 0.1;
  static constexpr double kDamping = 0.25;
  static constexpr double kContactDistance = 0.15 + 0.15;
  static constexpr double kContactForce = 1e2;
  static constexpr double kContactMargin = 1e-3;

  static V squared_distance(const V* a, const V* b) {
    const V x = a[0] - b[0], y = a[1] - b[1];
    return x * x + y * y;
  }

  // What agent i does to itself.
  static void push(const V* actions, std::size_t i, V* force) {
    const V zero = {};
    for (std::size_t axis = 0; axis < 2; ++axis) {
      if constexpr (kIsContinuous) {
        const V* pair = actions + 5 * i + 1 + 2 * axis;
        const V up = held(pair[1], 0.0, 1.0), down = held(pair[0], 0.0, 1.0);
        force[axis] = in_float32(up - down) * kPush;
      } else {
        const V action = actions[i];
        const double down = 1.0 + 2.0 * static_cast<double>(axis);
        force[axis] = action == down ? zero - kPush : zero;
        force[axis] = action == down + 1.0 ? zero + kPush : force[axis];
      }
    }
  }

  static void repel(const V* positions, V* forces) {
    for (std::size_t a = 0; a + 1 < kAgents; ++a) {
      for (std::size_t b = a + 1; b < kAgents; ++b) {
        const V distance = square_root(squared_distance(positions + 2 * a, positions + 2 * b));
        const V y = -(distance - kContactDistance) / kContactMargin;
        const V depth = log_one_plus_exp(y) * kContactMargin;
        for (std::size_t axis = 0; axis < 2; ++axis) {
          const V apart = positions[2 * a + axis] - positions[2 * b + axis];
          const V force = kContactForce * apart / distance * depth;
          forces[2 * a + axis] = force + forces[2 * a + axis];
          forces[2 * b + axis] = -force + forces[2 * b + axis];
        }
      }
    }
  }

  static V global_reward(const V* state) {
    V reward = {};
    for (std::size_t j = 0; j < kAgents; ++j) {
      const V* landmark = state + kLandmarks + 2 * j;
      V least = squared_distance(state, landmark);
      for (std::size_t i = 1; i < kAgents; ++i) {
        const V squared = squared_distance(state + 2 * i, landmark);
        least = squared < least ? squared : least;
      }
      reward = reward - square_root(least);
    }
    return reward;
  }

  static void count_contacts(const V* positions, V* contacts) {
    for (std::size_t i = 0; i < kAgents; ++i) contacts[i] = V{};
    const V zero = {};
    for (std::size_t a = 0; a + 1 < kAgents; ++a) {
      for (std::size_t b = a + 1; b < kAgents; ++b) {
        const V distance = square_root(squared_distance(positions + 2 * a, positions + 2 * b));
        const V one = distance < kContactDistance ? zero + 1.0 : zero;
        contacts[a] = contacts[a] + one;
        contacts[b] = contacts[b] + one;
      }
    }
  }

  static Longs step(V* state, const V* actions, double local_ratio, V* rewards) {
    V forces[2 * kAgents];
    for (std::size_t i = 0; i < kAgents; ++i) push(actions, i, forces + 2 * i);
    repel(state, forces);
    for (std::size_t j = 0; j < 2 * kAgents; ++j) {
      V& velocity = state[kVelocities + j];
      state[j] = state[j] + velocity * kTimeStep;
      velocity = velocity * (1.0 - kDamping) + forces[j] * kTimeStep;
    }
    V contacts[kAgents];
    count_contacts(state, contacts);
    const V shared = global_reward(state) * (1.0 - local_ratio);
    for (std::size_t i = 0; i < kAgents; ++i)
      rewards[i] = shared + (V{} - contacts[i]) * local_ratio;
    return Longs{};
  }

  // Of each agent its velocity and position, how far away the landmarks and the others are, and
  // what these say, which is nothing.
  static void observe(const V* state, V* obs) {
    for (std::size_t i = 0; i < kAgents; ++i) {
      const V x = state[2 * i], y = state[2 * i + 1];
      *obs++ = state[kVelocities + 2 * i];
      *obs++ = state[kVelocities + 2 * i + 1];
      *obs++ = x;
      *obs++ = y;
      for (std::size_t j = 0; j < kAgents; ++j) {
        *obs++ = state[kLandmarks + 2 * j] - x;
        *obs++ = state[kLandmarks + 2 * j + 1] - y;
      }
      for (std::size_t j = 0; j < kAgents; ++j) {
        if (j == i) continue;
        *obs++ = state[2 * j] - x;
        *obs++ = state[2 * j + 1] - y;
      }
      for (std::size_t j = 0; j < 2 * (kAgents - 1); ++j) *obs++ = V{};
    }
  }
};
