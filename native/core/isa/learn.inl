// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// Calls body(i) for whole vectors and rest(i) for the numbers behind them.
template <typename Body, typename Rest>
[[gnu::always_inline]] inline void over(std::size_t n, Body&& body, Rest&& rest) {
  std::size_t i = 0;
  for (; i + kFloats <= n; i += kFloats) body(i);
  for (; i < n; ++i) rest(i);
}

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

struct Identity {
  static constexpr bool kIsCheap = true;
  template <typename V>
  static V of(V x) {
    return x;
  }
};
struct Tanh {
  static constexpr bool kIsCheap = false;
  static Vector<float> of(Vector<float> x) { return tanh_of(x); }
};
struct Relu {
  static constexpr bool kIsCheap = true;
  static float of(float x) { return x < 0.0f ? 0.0f : x; }
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x < zero ? zero : x;  // NaN stays NaN
  }
};

struct LeakyRelu {
  static constexpr bool kIsCheap = true;
  static constexpr float kSlope = 0.01f;
  static float of(float x) { return x < 0.0f ? kSlope * x : x; }
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x < zero ? broadcast(kSlope) * x : x;
  }
};
struct Elu {
  static constexpr bool kIsCheap = false;
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    const ExpPieces<float> e = exp_pieces<float>(x > zero ? zero : x);
    const Vector<float> scale = e.scale1 * e.scale2;
    // exp(x) - 1 without cancellation.
    return x > zero ? x : multiply_add(scale, e.r + e.tail, scale - broadcast(1.0f));
  }
};

template <typename Activation>
void bias_activation(float* x, const float* bias, std::size_t n_rows, std::size_t n) {
  for (std::size_t row = 0; row < n_rows; ++row, x += n) {
    std::size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
      store(x + i, Activation::of(load(x + i) + load(bias + i)));
    }
    if constexpr (Activation::kIsCheap) {
      for (; i < n; ++i) x[i] = Activation::of(x[i] + bias[i]);
    }
    if (i == n) continue;
    Vector<float> rest = {}, rest_bias = {};
    __builtin_memcpy(&rest, x + i, (n - i) * sizeof(float));
    __builtin_memcpy(&rest_bias, bias + i, (n - i) * sizeof(float));
    rest = Activation::of(rest + rest_bias);
    __builtin_memcpy(x + i, &rest, (n - i) * sizeof(float));
  }
}

void tanh_backward(float* grad, const float* y, std::size_t n) {
  over(
      n,
      [&](std::size_t i) {
        const Vector<float> v = load(y + i);
        store(grad + i, load(grad + i) * (broadcast(1.0f) - v * v));
      },
      [&](std::size_t i) { grad[i] *= 1.0f - y[i] * y[i]; });
}

void relu_backward(float* grad, const float* y, std::size_t n) {
  over(
      n,
      [&](std::size_t i) {
        const Vector<float> zero = {};
        store(grad + i, load(y + i) <= zero ? zero : load(grad + i));
      },
      [&](std::size_t i) { grad[i] = y[i] <= 0.0f ? 0.0f : grad[i]; });
}

void leaky_relu_backward(float* grad, const float* y, std::size_t n) {
  over(
      n,
      [&](std::size_t i) {
        const Vector<float> zero = {}, g = load(grad + i);
        store(grad + i, load(y + i) <= zero ? broadcast(LeakyRelu::kSlope) * g : g);
      },
      [&](std::size_t i) { grad[i] *= y[i] <= 0.0f ? LeakyRelu::kSlope : 1.0f; });
}

void elu_backward(float* grad, const float* y, std::size_t n) {
  over(
      n,
      [&](std::size_t i) {
        const Vector<float> zero = {}, one = broadcast(1.0f), v = load(y + i);
        store(grad + i, load(grad + i) * (v <= zero ? v + one : one));
      },
      [&](std::size_t i) { grad[i] *= y[i] <= 0.0f ? y[i] + 1.0f : 1.0f; });
}

void add(float* sums, const float* x, std::size_t n) {
  over(
      n, [&](std::size_t i) { store(sums + i, load(sums + i) + load(x + i)); },
      [&](std::size_t i) { sums[i] += x[i]; });
}

template <std::size_t kVectors>
void add_column_vectors(float* sums, const float* x, std::size_t n_rows, std::size_t n) {
  Vector<float> totals[kVectors];
#pragma GCC unroll 8
  for (std::size_t j = 0; j < kVectors; ++j) totals[j] = Vector<float>{};
  for (std::size_t row = 0; row < n_rows; ++row, x += n) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kVectors; ++j) totals[j] += load(x + j * kFloats);
  }
#pragma GCC unroll 8
  for (std::size_t j = 0; j < kVectors; ++j) {
    store(sums + j * kFloats, load(sums + j * kFloats) + totals[j]);
  }
}

void add_columns(float* sums, const float* x, std::size_t n_rows, std::size_t n) {
  std::size_t i = 0;
  for (; i + 8 * kFloats <= n; i += 8 * kFloats) add_column_vectors<8>(sums + i, x + i, n_rows, n);
  for (; i + kFloats <= n; i += kFloats) add_column_vectors<1>(sums + i, x + i, n_rows, n);
  for (; i < n; ++i) {
    float total = 0.0f;
    for (std::size_t row = 0; row < n_rows; ++row) total += x[row * n + i];
    sums[i] += total;
  }
}

double sum_of_squares(const float* x, std::size_t n) {
  constexpr std::size_t kDoubles = Simd<double>::kWidth;
  Vector<double> sums[2] = {};
  std::size_t i = 0;
  for (; i + 2 * kDoubles <= n; i += 2 * kDoubles) {
    for (std::size_t j = 0; j < 2; ++j) {
      const Vector<double> v = load_double(x + i + j * kDoubles);
      sums[j] = multiply_add(v, v, sums[j]);
    }
  }
  double sum = sum_lanes<double>(sums[0] + sums[1]);
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

void scale(float* x, float factor, std::size_t n) {
  over(
      n, [&](std::size_t i) { store(x + i, load(x + i) * factor); },
      [&](std::size_t i) { x[i] *= factor; });
}

template <typename T>
inline T root(T x) {
  return __builtin_sqrtf(x);
}
inline Vector<float> root(Vector<float> x) {
#if defined(__AVX512F__)
  return (Vector<float>)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
  return (Vector<float>)_mm256_sqrt_ps((__m256)x);
#else
  for (std::size_t i = 0; i < kFloats; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// m = m + (1 - b1) (g - m), v = b2 v + (1 - b2) g g, x -= lr (m / c1) / (sqrt(v / c2) + eps)
void adam(float* data, const float* grad, float* mean, float* square, std::size_t n,
          const AdamStep& step) {
  const auto update = [&](auto g, auto& m, auto& v, auto& x) __attribute__((always_inline)) {
    m = m + step.share1 * (g - m);
    v = step.beta2 * v + step.share2 * g * g;
    x = x - step.size * m / (root(v) * step.root_factor + step.eps);
  };
  over(
      n,
      [&](std::size_t i) {
        Vector<float> m = load(mean + i), v = load(square + i), x = load(data + i);
        update(load(grad + i), m, v, x);
        store(mean + i, m);
        store(square + i, v);
        store(data + i, x);
      },
      [&](std::size_t i) { update(grad[i], mean[i], square[i], data[i]); });
}

// v = alpha v + (1 - alpha) g g, x -= lr g / (sqrt(v) + eps)
void rmsprop(float* data, const float* grad, float* square, std::size_t n,
             const RmspropStep& step) {
  const auto update = [&](auto g, auto& v, auto& x) __attribute__((always_inline)) {
    v = step.alpha * v + step.share * g * g;
    x = x - step.lr * g / (root(v) + step.eps);
  };
  over(
      n,
      [&](std::size_t i) {
        Vector<float> v = load(square + i), x = load(data + i);
        update(load(grad + i), v, x);
        store(square + i, v);
        store(data + i, x);
      },
      [&](std::size_t i) { update(grad[i], square[i], data[i]); });
}
