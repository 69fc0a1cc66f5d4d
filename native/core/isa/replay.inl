// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// log(1 + exp(x)) without overflow.
inline Vector<float> softplus_of(Vector<float> x) {
  const Vector<float> zero = {};
  const Vector<float> size = x < zero ? -x : x;
  return (x < zero ? zero : x) + log_of(exp_of<float>(-size) + 1.0f);
}

// tanh(x) that reaches 1, so that actions reach their bounds.
inline Vector<float> whole_tanh_of(Vector<float> x) {
  constexpr float kWhole = 9.0f;
  const Vector<float> y = tanh_of(x);
  return x > broadcast(kWhole) ? broadcast(1.0f) : x < broadcast(-kWhole) ? broadcast(-1.0f) : y;
}

// log N(u) - log(1 - tanh(u)^2), where the latter is 2 (log 2 - u - softplus(-2 u)): written with
// the tanh it would be the logarithm of a difference of nearly equal numbers.
void squash(const Squashed& squashed, float lowest, float highest, std::size_t n) {
  constexpr float kLogSqrt2Pi = 0.91893853f, kLog4 = 1.38629436f;
  for (std::size_t i = 0; i < n; i += kFloats) {
    Vector<float> log_std = load(squashed.log_std + i);
    log_std = log_std < broadcast(lowest) ? broadcast(lowest) : log_std;
    log_std = log_std > broadcast(highest) ? broadcast(highest) : log_std;
    const Vector<float> noise = load(squashed.noise + i);
    const Vector<float> spread = exp_of<float>(log_std) * noise;
    const Vector<float> u = load(squashed.mean + i) + spread;
    const Vector<float> slope = (softplus_of(u * -2.0f) + u) * 2.0f;
    store(squashed.log_std + i, log_std);
    store(squashed.spread + i, spread);
    store(squashed.action + i, whole_tanh_of(u));
    store(squashed.density + i, slope - log_std - noise * noise * 0.5f - (kLogSqrt2Pi + kLog4));
  }
}

void tanh_in_place(float* x, std::size_t n) {
  std::size_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store(x + i, whole_tanh_of(load(x + i)));
  if (i == n) return;
  Vector<float> rest = {};
  __builtin_memcpy(&rest, x + i, (n - i) * sizeof(float));
  rest = whole_tanh_of(rest);
  __builtin_memcpy(x + i, &rest, (n - i) * sizeof(float));
}
