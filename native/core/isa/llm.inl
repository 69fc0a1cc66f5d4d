// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// log_p - log_q; equal infinities differ by nothing.
template <typename V>
inline V log_difference(V log_p, V log_q) {
  const V zero = {};
  return log_p == log_q ? zero : log_p - log_q;
}

// One term of the sum, d = log_p - log_q. A token with log_p = log_q = 0 adds 0 to each, which
// pads tails.
struct K1 {
  template <typename V>
  static V term(V, V d) {
    return d;
  }
};

struct K2 {
  template <typename V>
  static V term(V, V d) {
    return d * d * typename ExpParts<V>::Scalar(0.5);
  }
};

struct K3 {
  // exp(-d) - 1 + d. Where -d needs no range reduction (|d| < ln2 / 2) this is r*r*P(r), free of
  // the cancellation that would leave no digit of a small d.
  template <typename V>
  static V term(V, V d) {
    using Scalar = typename ExpParts<V>::Scalar;
    const V zero = {};
    const V bound = zero - ExpParts<V>::kHighest;
    const ExpPieces<V> e = exp_pieces(-d);
    const V above = d < bound ? bound : d;  // exp is already inf: -inf would make it NaN
    const V full = ((e.r + e.tail) + Scalar(1)) * e.scale1 * e.scale2 - Scalar(1) + above;
    return e.n == zero ? e.tail : full;
  }
};

struct Weighted {
  // exp(log_p) * d, where p = 0 adds nothing whatever d is.
  template <typename V>
  static V term(V log_p, V d) {
    const V zero = {};
    const V lowest = zero + ExpParts<V>::kLowest;
    return log_p < lowest ? zero : exp_of(log_p) * d;
  }
};

template <std::size_t kFirst, std::size_t... kLane>
Vector<double> half_lanes(Vector<float> v, std::index_sequence<kLane...>) {
  const HalfFloats half = __builtin_shufflevector(v, v, (kFirst + kLane)...);
  return __builtin_convertvector(half, Vector<double>);
}

// Two sums in double per vector of terms, so that a million float32 tokens lose no digit.
struct TermSum {
  Vector<double> a = {}, b = {};

  void add(Vector<float> terms) {
    constexpr std::size_t kHalf = Simd<double>::kWidth;
    a += half_lanes<0>(terms, std::make_index_sequence<kHalf>());
    b += half_lanes<kHalf>(terms, std::make_index_sequence<kHalf>());
  }
  void add(Vector<double> terms) { a += terms; }
};

template <typename Estimator, typename T>
double sum_terms(const T* log_p, const T* log_q, std::size_t n) {
  constexpr std::size_t kWidth = Simd<T>::kWidth;
  TermSum even, odd;
  std::size_t i = 0;
  for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
    const Vector<T> p0 = load(log_p + i), p1 = load(log_p + i + kWidth);
    even.add(Estimator::term(p0, log_difference(p0, load(log_q + i))));
    odd.add(Estimator::term(p1, log_difference(p1, load(log_q + i + kWidth))));
  }
  for (; i < n; i += kWidth) {
    Vector<T> p = {}, q = {};
    const std::size_t left = n - i < kWidth ? n - i : kWidth;
    __builtin_memcpy(&p, log_p + i, left * sizeof(T));
    __builtin_memcpy(&q, log_q + i, left * sizeof(T));
    even.add(Estimator::term(p, log_difference(p, q)));
  }
  return sum_lanes<double>((even.a + even.b) + (odd.a + odd.b));
}

template <typename Estimator, typename T>
double sum_masked_terms(const T* log_p, const T* log_q, const std::uint8_t* mask, std::size_t n) {
  if (mask == nullptr) return sum_terms<Estimator>(log_p, log_q, n);
  constexpr std::size_t kBlock = 512;
  T p[kBlock], q[kBlock];
  double sum = 0;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t count = n - begin < kBlock ? n - begin : kBlock;
    for (std::size_t i = 0; i < count; ++i) {
      const T given_p = log_p[begin + i], given_q = log_q[begin + i];
      p[i] = mask[begin + i] ? given_p : T(0);
      q[i] = mask[begin + i] ? given_q : T(0);
    }
    sum += sum_terms<Estimator>(p, q, count);
  }
  return sum;
}

template <typename T>
double token_kl(const T* log_p, const T* log_q, const std::uint8_t* mask, std::size_t n,
                KlEstimator estimator) {
  switch (estimator) {
    case KlEstimator::kK1:
      return sum_masked_terms<K1>(log_p, log_q, mask, n);
    case KlEstimator::kK2:
      return sum_masked_terms<K2>(log_p, log_q, mask, n);
    case KlEstimator::kK3:
      return sum_masked_terms<K3>(log_p, log_q, mask, n);
    case KlEstimator::kWeighted:
      return sum_masked_terms<Weighted>(log_p, log_q, mask, n);
  }
  return 0;
}

// The sum of (x - shift)**kPower over n numbers.
template <int kPower, typename T>
double shifted_sum(const T* x, std::size_t n, double shift) {
  constexpr std::size_t kWidth = Simd<double>::kWidth;
  Vector<double> sums = {};
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const Vector<double> d = load_double(x + i) - shift;
    sums += kPower == 2 ? d * d : d;
  }
  double sum = sum_lanes<double>(sums);
  for (; i < n; ++i) {
    const double d = static_cast<double>(x[i]) - shift;
    sum += kPower == 2 ? d * d : d;
  }
  return sum;
}

template <typename T>
void group_advantages(const T* rewards, std::size_t n_groups, std::size_t group_size,
                      T* advantages) {
  const double count = static_cast<double>(group_size);
  for (std::size_t g = 0; g < n_groups; ++g) {
    const T* __restrict group = rewards + g * group_size;
    T* __restrict out = advantages + g * group_size;
    // Sums are taken around the first reward: a large common offset costs no digit.
    const double first = static_cast<double>(group[0]);
    const double mean = first + shifted_sum<1>(group, group_size, first) / count;
    const double deviation = __builtin_sqrt(shifted_sum<2>(group, group_size, mean) / count);
    const double scale = deviation < 1e-8 ? 0.0 : 1.0 / deviation;
    for (std::size_t i = 0; i < group_size; ++i) {
      out[i] = static_cast<T>((static_cast<double>(group[i]) - mean) * scale);
    }
  }
}
