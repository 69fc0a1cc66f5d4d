// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// Pendulum-v1: a torque u within [-2, 2] swings a pendulum up and holds it there. The angle counts
// from the upright position. An episode only ends by its time limit.
//
// The cost is angle**2 + 0.1 speed**2 + 0.001 u**2 with the angle in [-pi, pi). A pendulum of
// length and mass 1 gains (3/2 g sin(angle) + 3 u) dt of speed, which is then held within [-8, 8].
// Gymnasium has the torque, and what it multiplies, in float32.
struct Pendulum {
  static constexpr double kStartLow[] = {-3.141592653589793, -1.0};
  static constexpr double kStartHigh[] = {3.141592653589793, 1.0};
  static constexpr EnvSpec kSpec = {.id = "Pendulum-v1",
                                    .variables = 2,
                                    .obs_size = 3,
                                    .n_actions = 0,
                                    .action_low = -2.0f,
                                    .action_high = 2.0f,
                                    .time_limit = 200,
                                    .start_low = kStartLow,
                                    .start_high = kStartHigh,
                                    .start_in_float32 = false,
                                    .option = "g",
                                    .option_default = 10.0,
                                    .step_ns = 10.0};
  static constexpr double kPi = 3.141592653589793;
  static constexpr double kLargestSpeed = 8.0;
  static constexpr double kLargestTorque = 2.0;
  static constexpr double kTimeStep = 0.05;

  static Outcome step(V* state, V action, double gravity) {
    V &angle = state[0], &speed = state[1];
    const V torque = held(action, -kLargestTorque, kLargestTorque);
    const V from_top = floor_mod(angle + kPi, 2 * kPi) - kPi;
    const V effort = in_float32(in_float32(torque * torque) * float32(0.001));
    const V cost = from_top * from_top + 0.1 * (speed * speed) + effort;

    const V gained = 3 * gravity / 2 * sin_cos(angle).sin + in_float32(3.0 * torque);
    speed = held(speed + gained * kTimeStep, -kLargestSpeed, kLargestSpeed);
    angle = angle + speed * kTimeStep;
    return {-cost, Longs{}};
  }

  static void observe(const V* state, V* obs) {
    const auto [sine, cosine] = sin_cos(state[0]);
    obs[0] = cosine;
    obs[1] = sine;
    obs[2] = state[1];
  }
};
