// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// Calls body(i) for whole vectors and rest(i) for the numbers behind them.
template <typename Body, typename Rest>
[[gnu::always_inline]] inline void over(std::size_t n, Body&& body, Rest&& rest) {
  std::size_t i = 0;
  for (; i + kFloats <= n; i += kFloats) body(i);
  for (; i < n; ++i) rest(i);
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
