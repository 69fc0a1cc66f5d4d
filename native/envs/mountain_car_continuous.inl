// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// MountainCarContinuous-v0: the car of MountainCar-v0 with a force within [-1, 1] and the flag at
// 0.45. Reaching it pays 100, a step costs 0.1 action**2.
//
//   velocity += 0.0015 force - 0.0025 cos(3 position),   position += velocity
//
// Gymnasium rounds the state of every step to float32, and computes with NumPy's float32 from then
// on; only the step after a reset begins with float64. The trajectories are the same only when
// every rounding is, so they are all here: `rounded` is float32 except in that first step.
struct MountainCarContinuous {
  static constexpr double kStartLow[] = {-0.6, 0.0};
  static constexpr double kStartHigh[] = {-0.4, 0.0};
  static constexpr EnvSpec kSpec = {.id = "MountainCarContinuous-v0",
                                    .variables = 2,
                                    .obs_size = 2,
                                    .n_actions = 0,
                                    .action_low = -1.0f,
                                    .action_high = 1.0f,
                                    .time_limit = 999,
                                    .start_low = kStartLow,
                                    .start_high = kStartHigh,
                                    .start_in_float32 = false,
                                    .option = "goal_velocity",
                                    .option_default = 0.0,
                                    .step_ns = 10.0};
  static constexpr double kLargestSpeed = 0.07;
  static constexpr double kLeft = -1.2, kRight = 0.6;
  static constexpr double kGoal = 0.45;
  static constexpr double kPower = 0.0015;

  static Outcome step(V* state, V action, double goal_velocity) {
    V &position = state[0], &velocity = state[1];
    // A state that float32 cannot hold is one of a reset.
    const Longs is_first = (in_float32(position) != position) | (in_float32(velocity) != velocity);
    const auto rounded = [&](V x) { return is_first ? x : in_float32(x); };

    const V slope = 0.0025 * sin_cos(rounded(3.0 * position)).cos;
    // A force that was cut is a Python float, one that was not a float32.
    const Longs is_cut = (action < -1.0) | (action > 1.0);
    const V force = held(action, -1.0, 1.0);
    const V gained = is_cut ? rounded(force * kPower - slope)
                            : in_float32(in_float32(force * float32(kPower)) - in_float32(slope));
    const V fastest = rounded(broadcast(kLargestSpeed));
    const V left = rounded(broadcast(kLeft)), right = rounded(broadcast(kRight));
    velocity = held(rounded(velocity + gained), -fastest, fastest);
    position = held(rounded(position + velocity), left, right);
    const V zero = {};
    velocity = ((position == left) & (velocity < 0.0)) ? zero : velocity;
    const Longs arrived =
        (position >= rounded(broadcast(kGoal))) & (velocity >= rounded(broadcast(goal_velocity)));
    const V reward = (arrived ? zero + 100.0 : zero) - action * action * 0.1;
    position = in_float32(position);
    velocity = in_float32(velocity);
    return {reward, arrived};
  }

  static void observe(const V* state, V* obs) {
    obs[0] = state[0];
    obs[1] = state[1];
  }
};
