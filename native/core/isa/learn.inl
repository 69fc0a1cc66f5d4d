// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// Calls body(i) for whole vectors and rest(i) for the numbers behind them.
template <typename Body, typename Rest>
[[gnu::always_inline]] inline void over(std::size_t n, Body&& body, Rest&& rest) {
  std::size_t i = 0;
  for (; i + kFloats <= n; i += kFloats) body(i);
  for (; i < n; ++i) rest(i);
}

// tanh(x) = 1 - 2 / (exp(2x) + 1), and for small x, where that cancels, an odd polynomial.
inline Vector<float> tanh_of(Vector<float> x) {
  const Vector<float> one = broadcast(1.0f);
  const Vector<float> large = one - broadcast(2.0f) / (exp_of<float>(x + x) + one);
  const Vector<float> s = x * x;
  Vector<float> p = broadcast(-5.70498872745e-3f);
  p = multiply_add(p, s, broadcast(2.06390887954e-2f));
  p = multiply_add(p, s, broadcast(-5.37397155531e-2f));
  p = multiply_add(p, s, broadcast(1.33314422036e-1f));
  p = multiply_add(p, s, broadcast(-3.33332819422e-1f));
  const Vector<float> small = multiply_add(p * s, x, x);
  const Vector<float> limit = broadcast(0.390625f);  // 0.625 squared
  return s < limit ? small : large;
}

struct Identity {
  static Vector<float> of(Vector<float> x) { return x; }
};
struct Tanh {
  static Vector<float> of(Vector<float> x) { return tanh_of(x); }
};
struct Relu {
  static Vector<float> of(Vector<float> x) {
    const Vector<float> zero = {};
    return x > zero ? x : zero;
  }
};

template <typename Activation>
void bias_activation(float* x, const float* bias, std::size_t n_rows, std::size_t n) {
  for (std::size_t row = 0; row < n_rows; ++row, x += n) {
    std::size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
      store(x + i, Activation::of(load(x + i) + load(bias + i)));
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
        store(grad + i, load(y + i) > zero ? load(grad + i) : zero);
      },
      [&](std::size_t i) { grad[i] = y[i] > 0.0f ? grad[i] : 0.0f; });
}

void add_columns(float* sums, const float* x, std::size_t n_rows, std::size_t n) {
  for (std::size_t row = 0; row < n_rows; ++row, x += n) {
    over(
        n, [&](std::size_t i) { store(sums + i, load(sums + i) + load(x + i)); },
        [&](std::size_t i) { sums[i] += x[i]; });
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

// m = m + (1 - b1) (g - m), v = b2 v + (1 - b2) g g, x -= lr (m / c1) / (sqrt(v) / sqrt(c2) + eps)
void adam(float* data, const float* grad, float* mean, float* square, std::size_t n,
          const AdamStep& step) {
  const float step_size = step.lr / step.correction1;
  const float root_correction = __builtin_sqrtf(step.correction2);
  const float share1 = 1.0f - step.beta1, share2 = 1.0f - step.beta2;
  const auto update = [&](auto g, auto& m, auto& v, auto& x) __attribute__((always_inline)) {
    m = m + share1 * (g - m);
    v = step.beta2 * v + share2 * g * g;
    x = x - step_size * m / (root(v) / root_correction + step.eps);
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

void rmsprop(float* data, const float* grad, float* square, std::size_t n, float lr, float alpha,
             float eps) {
  const auto update = [&](auto g, auto& v, auto& x) __attribute__((always_inline)) {
    v = alpha * v + (1.0f - alpha) * g * g;
    x = x - lr * g / (root(v) + eps);
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
