// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).

// Acrobot-v1: two links hang from a bar; a torque of -1, 0 or 1 (actions 0, 1, 2) on the joint
// between them swings the free end above one link's length. Every step before costs 1.
//
// Both links have mass, length and moment of inertia 1 and their center in the middle. The
// equations of motion are those of Sutton and Barto's book, integrated over 0.2 s by one step of
// the Runge-Kutta method of fourth order.
struct Acrobot {
  static constexpr double kStartLow[] = {-0.1, -0.1, -0.1, -0.1};
  static constexpr double kStartHigh[] = {0.1, 0.1, 0.1, 0.1};
  static constexpr EnvSpec kSpec = {.id = "Acrobot-v1",
                                    .variables = 4,
                                    .obs_size = 6,
                                    .n_actions = 3,
                                    .action_low = 0.0f,
                                    .action_high = 0.0f,
                                    .time_limit = 500,
                                    .start_low = kStartLow,
                                    .start_high = kStartHigh,
                                    .start_in_float32 = true,
                                    .option = "",
                                    .option_default = 0.0,
                                    .step_ns = 45.0};
  static constexpr double kPi = 3.141592653589793;
  static constexpr double kGravity = 9.8;
  static constexpr double kTimeStep = 0.2;
  static constexpr double kLargestSpeed1 = 4 * kPi;
  static constexpr double kLargestSpeed2 = 9 * kPi;

  struct Motion {
    V angle1, angle2, speed1, speed2;
  };

  static Motion moved(const Motion& from, double time, const Motion& by) {
    return {from.angle1 + time * by.angle1, from.angle2 + time * by.angle2,
            from.speed1 + time * by.speed1, from.speed2 + time * by.speed2};
  }

  // The derivative of a motion. d1, d2 and phi1, phi2 are the book's.
  static Motion change(const Motion& at, V torque) {
    const auto [sine2, cosine2] = sin_cos(at.angle2);
    const V d1 = 0.25 + (1.25 + cosine2) + 1.0 + 1.0;
    const V d2 = (0.25 + 0.5 * cosine2) + 1.0;
    const V phi2 = 0.5 * kGravity * sin_cos(at.angle1 + at.angle2 - kPi / 2).cos;
    const V phi1 = -0.5 * (at.speed2 * at.speed2) * sine2 - at.speed2 * at.speed1 * sine2 +
                   1.5 * kGravity * sin_cos(at.angle1 - kPi / 2).cos + phi2;
    const V turns2 = (torque + d2 / d1 * phi1 - 0.5 * (at.speed1 * at.speed1) * sine2 - phi2) /
                     (1.25 - d2 * d2 / d1);
    const V turns1 = -(d2 * turns2 + phi1) / d1;
    return {at.speed1, at.speed2, turns1, turns2};
  }

  // Within [-pi, pi] by whole turns.
  static V wrapped(V angle) {
    const V turn = broadcast(2 * kPi);
    for (int i = 0; i < 8 && any((angle > kPi) | (angle < -kPi)); ++i) {
      angle = angle > kPi ? angle - turn : angle;
      angle = angle < -kPi ? angle + turn : angle;
    }
    const Longs far = (angle > kPi) | (angle < -kPi);  // only from a start far out
    if (__builtin_expect(any(far), 0)) floor_mod_far(angle + kPi, 2 * kPi, far, &angle);
    return far ? angle - kPi : angle;
  }

  static Outcome step(V* state, V action, double) {
    const V torque = action - 1.0;
    const Motion start = {state[0], state[1], state[2], state[3]};
    const Motion k1 = change(start, torque);
    const Motion k2 = change(moved(start, kTimeStep / 2, k1), torque);
    const Motion k3 = change(moved(start, kTimeStep / 2, k2), torque);
    const Motion k4 = change(moved(start, kTimeStep, k3), torque);
    const auto mean = [](V a, V b, V c, V d) { return a + 2.0 * b + 2.0 * c + d; };
    const Motion sum = {mean(k1.angle1, k2.angle1, k3.angle1, k4.angle1),
                        mean(k1.angle2, k2.angle2, k3.angle2, k4.angle2),
                        mean(k1.speed1, k2.speed1, k3.speed1, k4.speed1),
                        mean(k1.speed2, k2.speed2, k3.speed2, k4.speed2)};
    const Motion end = moved(start, kTimeStep / 6, sum);
    state[0] = wrapped(end.angle1);
    state[1] = wrapped(end.angle2);
    state[2] = held(end.speed1, -kLargestSpeed1, kLargestSpeed1);
    state[3] = held(end.speed2, -kLargestSpeed2, kLargestSpeed2);

    const Longs is_up = -sin_cos(state[0]).cos - sin_cos(state[1] + state[0]).cos > 1.0;
    const V zero = {};
    return {is_up ? zero : zero - 1.0, is_up};
  }

  static void observe(const V* state, V* obs) {
    const auto [sine1, cosine1] = sin_cos(state[0]);
    const auto [sine2, cosine2] = sin_cos(state[1]);
    obs[0] = cosine1;
    obs[1] = sine1;
    obs[2] = cosine2;
    obs[3] = sine2;
    obs[4] = state[2];
    obs[5] = state[3];
  }
};
