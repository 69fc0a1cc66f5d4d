// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// CartPole-v1: a pole stands on a cart that is pushed to the left (0) or right (1). It must not
// lean by more than 12 degrees, nor the cart leave its track.
//
// With the force F, the cart's mass M, the pole's mass m and half length l, and
//   a = (F + m l w**2 sin(angle)) / (M + m),
// the pole turns by  w' = (g sin(angle) - a cos(angle)) / (l (4/3 - m cos(angle)**2 / (M + m)))
// and the cart moves by  v' = a - m l w' cos(angle) / (M + m); both are integrated by Euler's rule.
struct CartPole {
  static constexpr double kStartLow[] = {-0.05, -0.05, -0.05, -0.05};
  static constexpr double kStartHigh[] = {0.05, 0.05, 0.05, 0.05};
  static constexpr EnvSpec kSpec = {.id = "CartPole-v1",
                                    .variables = 4,
                                    .obs_size = 4,
                                    .n_actions = 2,
                                    .action_low = 0.0f,
                                    .action_high = 0.0f,
                                    .time_limit = 500,
                                    .start_low = kStartLow,
                                    .start_high = kStartHigh,
                                    .start_in_float32 = false,
                                    .option = "sutton_barto_reward",
                                    .option_default = 0.0,
                                    .step_ns = 12.0};
  static constexpr double kGravity = 9.8;
  static constexpr double kPoleMass = 0.1;
  static constexpr double kTotalMass = kPoleMass + 1.0;
  static constexpr double kHalfLength = 0.5;
  static constexpr double kPoleMassLength = kPoleMass * kHalfLength;
  static constexpr double kForce = 10.0;
  static constexpr double kTimeStep = 0.02;
  static constexpr double kLargestAngle = 12 * 2 * 3.141592653589793 / 360;
  static constexpr double kLargestPosition = 2.4;

  static Outcome step(V* state, V action, double sutton_barto_reward) {
    V &position = state[0], &velocity = state[1], &angle = state[2], &turning = state[3];
    const auto [sine, cosine] = sin_cos(angle);
    const V force = kForce * (2.0 * action - 1.0);
    const V pushed = (force + kPoleMassLength * (turning * turning) * sine) / kTotalMass;
    const V turns = (kGravity * sine - cosine * pushed) /
                    (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
    const V accelerates = pushed - kPoleMassLength * turns * cosine / kTotalMass;

    position = position + kTimeStep * velocity;
    velocity = velocity + kTimeStep * accelerates;
    angle = angle + kTimeStep * turning;
    turning = turning + kTimeStep * turns;

    const Longs fell = (position < -kLargestPosition) | (position > kLargestPosition) |
                       (angle < -kLargestAngle) | (angle > kLargestAngle);
    const V zero = {};
    if (sutton_barto_reward != 0) return {fell ? zero - 1.0 : zero, fell};
    return {zero + 1.0, fell};
  }

  static void observe(const V* state, V* obs) {
    for (std::size_t i = 0; i < 4; ++i) obs[i] = state[i];
  }
};
