// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

constexpr float kNormEps = 1e-4f;

inline Vector<float> load_part(const float* from, std::size_t count) {
  Vector<float> part = {};
  __builtin_memcpy(&part, from, count * sizeof(float));
  return part;
}

inline void store_part(float* to, Vector<float> vector, std::size_t count) {
  __builtin_memcpy(to, &vector, count * sizeof(float));
}

// Calls f(i, load, store) for vectors from i on; the last one may be a part, whose rest is 0.
template <typename F>
inline void for_vectors(std::size_t n, F f) {
  constexpr std::size_t kWidth = Simd<float>::kWidth;
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    f(
        i, [](const float* from) { return load(from); },
        [](float* to, Vector<float> v) { store(to, v); });
  }
  const std::size_t rest = n - i;
  if (rest == 0) return;
  f(
      i, [rest](const float* from) { return load_part(from, rest); },
      [rest](float* to, Vector<float> v) { store_part(to, v, rest); });
}

inline float inverse_rms(const float* x, std::size_t n) {
  Vector<float> sum = {};
  for_vectors(n, [&](std::size_t i, auto get, auto) {
    const Vector<float> v = get(x + i);
    sum = multiply_add(v, v, sum);
  });
  return 1.0f / __builtin_sqrtf(sum_lanes<float>(sum) / static_cast<float>(n) + kNormEps);
}

void norm_silu(const float* x, const float* scale, std::size_t rows, std::size_t n, float* out) {
  for (std::size_t row = 0; row < rows; ++row, x += n, out += n) {
    const float root = inverse_rms(x, n);
    for_vectors(n, [&](std::size_t i, auto get, auto put) {
      const Vector<float> y = get(x + i) * root * get(scale + i);
      put(out + i, y * sigmoid_of(y));
    });
  }
}

void norm_silu_backward(const float* x, const float* scale, const float* grad, std::size_t rows,
                        std::size_t n, float* of_x, float* of_scale) {
  for (std::size_t row = 0; row < rows; ++row, x += n, grad += n, of_x += n) {
    const float root = inverse_rms(x, n);
    Vector<float> dot = {};
    for_vectors(n, [&](std::size_t i, auto get, auto put) {
      const Vector<float> y = get(x + i) * root, s = get(scale + i), z = y * s;
      const Vector<float> gate = sigmoid_of(z);
      const Vector<float> g = get(grad + i) * (gate + z * gate * (1.0f - gate));
      put(of_scale + i, get(of_scale + i) + g * y);
      const Vector<float> of_y = g * s;
      dot = multiply_add(of_y, y, dot);
      put(of_x + i, of_y);
    });
    const float mean = sum_lanes<float>(dot) / static_cast<float>(n);
    for_vectors(n, [&](std::size_t i, auto get, auto put) {
      put(of_x + i, (get(of_x + i) - get(x + i) * root * mean) * root);
    });
  }
}

void remember(const float* gates, const float* before, std::size_t blocks, std::size_t rows,
              std::size_t n, float* out) {
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t row = 0; row < rows; ++row, gates += 3 * n) {
      const std::size_t at = (row * blocks + block) * n;
      for_vectors(n, [&](std::size_t i, auto get, auto put) {
        const Vector<float> reset = sigmoid_of(get(gates + i));
        const Vector<float> candidate = tanh_of(reset * get(gates + n + i));
        const Vector<float> update = sigmoid_of(get(gates + 2 * n + i) - 1.0f);
        const Vector<float> old = get(before + at + i);
        put(out + at + i, old + update * (candidate - old));
      });
    }
  }
}

void remember_backward(const float* gates, const float* before, const float* grad,
                       std::size_t blocks, std::size_t rows, std::size_t n, float* of_gates,
                       float* of_before) {
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t row = 0; row < rows; ++row, gates += 3 * n, of_gates += 3 * n) {
      const std::size_t at = (row * blocks + block) * n;
      for_vectors(n, [&](std::size_t i, auto get, auto put) {
        const Vector<float> reset = sigmoid_of(get(gates + i)), c = get(gates + n + i);
        const Vector<float> candidate = tanh_of(reset * c);
        const Vector<float> update = sigmoid_of(get(gates + 2 * n + i) - 1.0f);
        const Vector<float> g = get(grad + at + i);
        const Vector<float> of_new = g * update * (1.0f - candidate * candidate);
        put(of_gates + i, of_new * c * reset * (1.0f - reset));
        put(of_gates + n + i, of_new * reset);
        put(of_gates + 2 * n + i,
            g * (candidate - get(before + at + i)) * update * (1.0f - update));
        put(of_before + at + i, g * (1.0f - update));
      });
    }
  }
}

inline float largest(const float* x, std::size_t n) {
  float most = x[0];
  for (std::size_t i = 1; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// softmax of rows of few classes, whose exponentials are taken of all rows at once.
inline void softmax_of_few(const float* logits, std::size_t rows, std::size_t n, float* out) {
  for (std::size_t row = 0; row < rows; ++row) {
    const float* x = logits + row * n;
    const float most = largest(x, n);
    for (std::size_t i = 0; i < n; ++i) out[row * n + i] = x[i] - most;
  }
  exp_array<float>(out, rows * n, out);
  for (std::size_t row = 0; row < rows; ++row) {
    float* p = out + row * n;
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += p[i];
    const float factor = 1.0f / sum;
    for (std::size_t i = 0; i < n; ++i) p[i] *= factor;
  }
}

void draw_classes(const float* logits, const float* noise, std::size_t rows, std::size_t n,
                  float share, float* work, float* out) {
  softmax_of_few(logits, rows, n, work);
  const float least = share / static_cast<float>(n);
  for_vectors(rows * n, [&](std::size_t i, auto get, auto put) {
    // Without a share of the uniform distribution a probability may be 0, which log_of knows not.
    const Vector<float> tiny = broadcast<float>(1.2e-38f);
    const Vector<float> p = get(work + i) * (1.0f - share) + least;
    put(work + i, log_of(p < tiny ? tiny : p) + get(noise + i));
    put(out + i, Vector<float>{});
  });
  for (std::size_t row = 0; row < rows; ++row) {
    const float* x = work + row * n;
    std::size_t best = 0;
    for (std::size_t i = 1; i < n; ++i) best = x[i] > x[best] ? i : best;
    out[row * n + best] = 1.0f;
  }
}

void draw_classes_backward(const float* logits, const float* grad, std::size_t rows, std::size_t n,
                           float share, float* out) {
  softmax_of_few(logits, rows, n, out);
  for (std::size_t row = 0; row < rows; ++row) {
    float* p = out + row * n;
    const float* g = grad + row * n;
    float mean = 0;
    for (std::size_t i = 0; i < n; ++i) mean += p[i] * g[i];
    for (std::size_t i = 0; i < n; ++i) p[i] = (1.0f - share) * p[i] * (g[i] - mean);
  }
}

inline float largest_of_many(const float* x, std::size_t n) {
  constexpr std::size_t kWidth = Simd<float>::kWidth;
  if (n < kWidth) return largest(x, n);
  Vector<float> most = load(x);
  for (std::size_t i = kWidth; i + kWidth <= n; i += kWidth) {
    const Vector<float> v = load(x + i);
    most = v > most ? v : most;
  }
  const Vector<float> last = load(x + n - kWidth);
  most = last > most ? last : most;
  float found = most[0];
  for (std::size_t i = 1; i < kWidth; ++i) found = most[i] > found ? most[i] : found;
  return found;
}

// exp(x - most) of a row, and its sum.
inline float exponentials(const float* x, std::size_t n, float most, float* out) {
  Vector<float> sum = {};
  constexpr std::size_t kWidth = Simd<float>::kWidth;
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vector<float> e = exp_of<float>(load(x + i) - most);
    sum += e;
    store(out + i, e);
  }
  float total = sum_lanes<float>(sum);
  if (i == n) return total;
  const Vector<float> e = exp_of<float>(load_part(x + i, n - i) - most);
  store_part(out + i, e, n - i);
  for (std::size_t k = 0; k < n - i; ++k) total += e[k];
  return total;
}

constexpr std::size_t kMostBins = 1024;

void two_hot_mean(const float* logits, const float* bins, std::size_t rows, std::size_t n,
                  float* out) {
  float e[kMostBins];
  const std::size_t half = n / 2;
  for (std::size_t row = 0; row < rows; ++row, logits += n) {
    const float sum = exponentials(logits, n, largest_of_many(logits, n), e);
    double mean = 0;
    for (std::size_t i = 0; i < half; ++i) {
      mean += static_cast<double>(e[half + 1 + i] - e[half - 1 - i]) * bins[half + 1 + i];
    }
    out[row] = static_cast<float>(mean / sum);
  }
}

// The bin at or above which a target lies, 1 to n - 1, and its share of the target.
inline std::size_t bin_above(const float* bins, std::size_t n, float target, float* share) {
  const float low = bins[0], high = bins[n - 1];
  const float x = target < low ? low : target > high ? high : target;
  std::size_t first = 1, last = n - 1;
  while (first < last) {
    const std::size_t middle = (first + last) / 2;
    if (bins[middle] > x) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  *share = (x - bins[first - 1]) / (bins[first] - bins[first - 1]);
  return first;
}

void two_hot_loss(const float* logits, const TwoHotTargets& targets, std::size_t rows,
                  std::size_t n, float* out) {
  float e[kMostBins];
  for (std::size_t row = 0; row < rows; ++row, logits += n) {
    const float most = largest_of_many(logits, n);
    const float normalizer = most + __builtin_logf(exponentials(logits, n, most, e));
    float loss = 0;
    for (std::size_t k = 0; k < targets.n_targets; ++k) {
      float share;
      const float target = targets.values[k * rows + row];
      const std::size_t above = bin_above(targets.bins, n, target, &share);
      const float mean = (1.0f - share) * logits[above - 1] + share * logits[above];
      loss += targets.weights[k] * (normalizer - mean);
    }
    out[row] = loss;
  }
}

void two_hot_loss_backward(const float* logits, const TwoHotTargets& targets, const float* grad,
                           std::size_t rows, std::size_t n, float* out) {
  float total = 0;
  for (std::size_t k = 0; k < targets.n_targets; ++k) total += targets.weights[k];
  for (std::size_t row = 0; row < rows; ++row, logits += n, out += n) {
    const float sum = exponentials(logits, n, largest_of_many(logits, n), out);
    const float factor = grad[row] * total / sum;
    for_vectors(n, [&](std::size_t i, auto get, auto put) { put(out + i, get(out + i) * factor); });
    for (std::size_t k = 0; k < targets.n_targets; ++k) {
      float share;
      const float target = targets.values[k * rows + row];
      const std::size_t above = bin_above(targets.bins, n, target, &share);
      const float weight = grad[row] * targets.weights[k];
      out[above - 1] -= weight * (1.0f - share);
      out[above] -= weight * share;
    }
  }
}
