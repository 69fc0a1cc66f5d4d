// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// tanh(x) = x P(x*x) / Q(x*x) where |x| < 8, and beyond it is 1 but for some units in the last
// place.
inline Vector<float> tanh_of(Vector<float> x) {
  constexpr float kLimit = 8.0f;
  constexpr float kP[] = {1.52306097e-8f, 2.18947989e-5f, 3.57160647e-3f, 1.34445056e-1f, 1.0f};
  constexpr float kQ[] = {8.52252469e-7f, 3.41130566e-4f, 2.6164474e-2f, 4.67778325e-1f, 1.0f};
  x = x < broadcast(-kLimit) ? broadcast(-kLimit) : x;
  x = x > broadcast(kLimit) ? broadcast(kLimit) : x;
  const Vector<float> s = x * x;
  Vector<float> p = broadcast(kP[0]), q = broadcast(kQ[0]);
#pragma GCC unroll 4
  for (std::size_t i = 1; i < 5; ++i) {
    p = multiply_add(p, s, broadcast(kP[i]));
    q = multiply_add(q, s, broadcast(kQ[i]));
  }
  return x * p / q;
}

inline Vector<float> sigmoid_of(Vector<float> x) { return 1.0f / (1.0f + exp_of<float>(-x)); }

// exp(x) - 1 without cancellation, where x <= 0.
inline Vector<float> expm1_of(Vector<float> x) {
  const ExpPieces<float> e = exp_pieces<float>(x);
  const Vector<float> scale = e.scale1 * e.scale2;
  return multiply_add(scale, e.r + e.tail, scale - broadcast(1.0f));
}

// Each activation has `of`, and `back`: the gradient of its input, given that of its output and
// what a forward pass left behind. That is the output, or where the slope cannot be told from it
// (kKeepsSlope) the slope.
struct Identity {
  static constexpr bool kIsCheap = true, kKeepsSlope = false;
  template <typename V>
  static V of(V x) {
    return x;
  }
};
struct Tanh {
  static constexpr bool kIsCheap = false, kKeepsSlope = false;
  static Vector<float> of(Vector<float> x) { return tanh_of(x); }
  static Vector<float> back(Vector<float> grad, Vector<float> y) {
    return grad * (broadcast(1.0f) - y * y);
  }
};
struct Relu {
  static constexpr bool kIsCheap = true, kKeepsSlope = false;
  static float of(float x) { return x < 0.0f ? 0.0f : x; }
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x < zero ? zero : x;  // NaN stays NaN
  }
  static Vector<float> back(Vector<float> grad, Vector<float> y) {
    const Vector<float> zero = {};
    return y <= zero ? zero : grad;
  }
};
struct LeakyRelu {
  static constexpr bool kIsCheap = true, kKeepsSlope = false;
  static constexpr float kSlope = 0.01f;
  static float of(float x) { return x < 0.0f ? kSlope * x : x; }
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x < zero ? broadcast(kSlope) * x : x;
  }
  static Vector<float> back(Vector<float> grad, Vector<float> y) {
    const Vector<float> zero = {};
    return y <= zero ? broadcast(kSlope) * grad : grad;
  }
};
struct Elu {
  static constexpr bool kIsCheap = false, kKeepsSlope = false;
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x > zero ? x : expm1_of(x > zero ? zero : x);
  }
  static Vector<float> back(Vector<float> grad, Vector<float> y) {
    const Vector<float> zero = {}, one = broadcast(1.0f);
    return grad * (y <= zero ? y + one : one);
  }
};
struct Selu {
  static constexpr bool kIsCheap = false, kKeepsSlope = false;
  static constexpr float kScale = 1.05070099f, kLimit = 1.75809934f;  // kLimit: scale times alpha
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x > zero ? broadcast(kScale) * x : broadcast(kLimit) * expm1_of(x > zero ? zero : x);
  }
  static Vector<float> back(Vector<float> grad, Vector<float> y) {
    const Vector<float> zero = {};
    return grad * (y <= zero ? y + broadcast(kLimit) : broadcast(kScale));
  }
};
// x times the share of the standard normal distribution below x.
struct Gelu {
  static constexpr bool kIsCheap = false, kKeepsSlope = true;
  static Vector<float> of(Vector<float> x) { return x * below(x, density(x)); }
  static Vector<float> of(Vector<float> x, Vector<float>* slope) {
    const Vector<float> e = density(x), share = below(x, e);
    *slope = multiply_add(x * broadcast(0.398942280f), e, share);
    return x * share;
  }

 private:
  static Vector<float> density(Vector<float> x) { return exp_of<float>(x * x * -0.5f); }
  // ½ exp(-x²/2) t P(t) with t = 1 / (1 + 0.23 |x|), up to 6e-8 of it, is the share below -|x|.
  static Vector<float> below(Vector<float> x, Vector<float> e) {
    constexpr float kP[] = {-0.144472092f, 0.510999858f, -0.43141228f, 0.477743268f,
                            0.011750753f,  0.210323572f, 0.179958344f, 0.185108513f};
    const Vector<float> zero = {}, one = broadcast(1.0f);
    const Vector<float> t = one / multiply_add(broadcast(0.231641888f), x < zero ? -x : x, one);
    Vector<float> p = broadcast(kP[0]);
#pragma GCC unroll 8
    for (std::size_t i = 1; i < 8; ++i) p = multiply_add(p, t, broadcast(kP[i]));
    const Vector<float> tail = broadcast(0.5f) * e * (t * p);
    return x < zero ? tail : one - tail;
  }
};
struct Silu {
  static constexpr bool kIsCheap = false, kKeepsSlope = true;
  static Vector<float> of(Vector<float> x) { return x * sigmoid_of(x); }
  static Vector<float> of(Vector<float> x, Vector<float>* slope) {
    const Vector<float> gate = sigmoid_of(x), y = x * gate;
    *slope = multiply_add(y, broadcast(1.0f) - gate, gate);
    return y;
  }
};

template <typename Activation>
void bias_activation(float* x, const float* bias, float* slopes, std::size_t n_rows,
                     std::size_t n) {
  Vector<float> slope;
  const auto of = [&](Vector<float> v) {
    if constexpr (Activation::kKeepsSlope) {
      return Activation::of(v, &slope);
    } else {
      return Activation::of(v);
    }
  };
  for (std::size_t row = 0; row < n_rows; ++row, x += n) {
    std::size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
      store(x + i, of(load(x + i) + load(bias + i)));
      if constexpr (Activation::kKeepsSlope) store(slopes + row * n + i, slope);
    }
    if constexpr (Activation::kIsCheap) {
      for (; i < n; ++i) x[i] = Activation::of(x[i] + bias[i]);
    }
    if (i == n) continue;
    Vector<float> rest = {}, rest_bias = {};
    __builtin_memcpy(&rest, x + i, (n - i) * sizeof(float));
    __builtin_memcpy(&rest_bias, bias + i, (n - i) * sizeof(float));
    rest = of(rest + rest_bias);
    __builtin_memcpy(x + i, &rest, (n - i) * sizeof(float));
    if constexpr (Activation::kKeepsSlope) {
      __builtin_memcpy(slopes + row * n + i, &slope, (n - i) * sizeof(float));
    }
  }
}

template <typename Activation>
void activation_backward(float* grad, const float* left, std::size_t n) {
  const auto back = [](Vector<float> g, Vector<float> v) {
    if constexpr (Activation::kKeepsSlope) {
      return g * v;
    } else {
      return Activation::back(g, v);
    }
  };
  std::size_t i = 0;
  for (; i + kFloats <= n; i += kFloats) store(grad + i, back(load(grad + i), load(left + i)));
  if (i == n) return;
  Vector<float> rest = {}, rest_left = {};
  __builtin_memcpy(&rest, grad + i, (n - i) * sizeof(float));
  __builtin_memcpy(&rest_left, left + i, (n - i) * sizeof(float));
  rest = back(rest, rest_left);
  __builtin_memcpy(grad + i, &rest, (n - i) * sizeof(float));
}
