// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// MountainCar-v0: a car too weak for the hill must swing back and forth to reach the flag at 0.5.
// It is pushed to the left, not at all, or to the right (0, 1, 2); every step costs 1.
//
//   velocity += 0.001 (action - 1) - 0.0025 cos(3 position),   position += velocity,
// the velocity held within [-0.07, 0.07] and the position within [-1.2, 0.6], a wall on the left.
struct MountainCar {
  static constexpr double kStartLow[] = {-0.6, 0.0};
  static constexpr double kStartHigh[] = {-0.4, 0.0};
  static constexpr EnvSpec kSpec = {.id = "MountainCar-v0",
                                    .variables = 2,
                                    .obs_size = 2,
                                    .n_actions = 3,
                                    .action_low = 0.0f,
                                    .action_high = 0.0f,
                                    .time_limit = 200,
                                    .start_low = kStartLow,
                                    .start_high = kStartHigh,
                                    .start_in_float32 = false,
                                    .option = "goal_velocity",
                                    .option_default = 0.0,
                                    .step_ns = 7.0};
  static constexpr double kLargestSpeed = 0.07;
  static constexpr double kLeft = -1.2, kRight = 0.6;
  static constexpr double kGoal = 0.5;

  static Outcome step(V* state, V action, double goal_velocity) {
    V &position = state[0], &velocity = state[1];
    const V slope = sin_cos(3.0 * position).cos;
    velocity = velocity + ((action - 1.0) * 0.001 + slope * -0.0025);
    velocity = held(velocity, -kLargestSpeed, kLargestSpeed);
    position = held(position + velocity, kLeft, kRight);
    const V zero = {};
    velocity = ((position == kLeft) & (velocity < 0.0)) ? zero : velocity;
    const Longs arrived = (position >= kGoal) & (velocity >= goal_velocity);
    return {zero - 1.0, arrived};
  }

  static void observe(const V* state, V* obs) {
    obs[0] = state[0];
    obs[1] = state[1];
  }
};
