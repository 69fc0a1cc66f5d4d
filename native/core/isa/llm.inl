// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// log_p - log_q; equal infinities differ by nothing.
template <typename T>
inline Vector<T> log_difference(Vector<T> log_p, Vector<T> log_q) {
  const Vector<T> zero = {};
  return log_p == log_q ? zero : log_p - log_q;
}

// One term of the sum, d = log_p - log_q. A token with log_p = log_q = 0 adds 0 to each, which
// pads tails.
template <typename T>
struct K1 {
  static Vector<T> term(Vector<T>, Vector<T> d) { return d; }
};

template <typename T>
struct K2 {
  static Vector<T> term(Vector<T>, Vector<T> d) { return d * d * T(0.5); }
};

template <typename T>
struct K3 {
  // exp(-d) - 1 + d. Where -d needs no range reduction (|d| < ln2 / 2) this is r*r*P(r), free of
  // the cancellation that would leave no digit of a small d.
  static Vector<T> term(Vector<T>, Vector<T> d) {
    const Vector<T> zero = {};
    const Vector<T> bound = broadcast<T>(-ExpConstants<T>::kHighest);
    const ExpPieces<T> e = exp_pieces<T>(-d);
    const Vector<T> above = d < bound ? bound : d;  // exp is inf already: -inf would make it NaN
    const Vector<T> full = ((e.r + e.tail) + T(1)) * e.scale1 * e.scale2 - T(1) + above;
    return e.n == zero ? e.tail : full;
  }
};

template <typename T>
struct Weighted {
  // exp(log_p) * d, where p = 0 adds nothing whatever d is.
  static Vector<T> term(Vector<T> log_p, Vector<T> d) {
    const Vector<T> zero = {};
    const Vector<T> lowest = broadcast<T>(ExpConstants<T>::kLowest);
    return log_p < lowest ? zero : exp_of<T>(log_p) * d;
  }
};

template <std::size_t kFirst, std::size_t... kLane>
Vector<double> half_lanes(Vector<float> v, std::index_sequence<kLane...>) {
  return widen(__builtin_shufflevector(v, v, (kFirst + kLane)...));
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
    even.add(Estimator::term(p0, log_difference<T>(p0, load(log_q + i))));
    odd.add(Estimator::term(p1, log_difference<T>(p1, load(log_q + i + kWidth))));
  }
  for (; i < n; i += kWidth) {
    Vector<T> p = {}, q = {};
    const std::size_t left = n - i < kWidth ? n - i : kWidth;
    __builtin_memcpy(&p, log_p + i, left * sizeof(T));
    __builtin_memcpy(&q, log_q + i, left * sizeof(T));
    even.add(Estimator::term(p, log_difference<T>(p, q)));
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
    case KlEstimator::k1:
      return sum_masked_terms<K1<T>>(log_p, log_q, mask, n);
    case KlEstimator::k2:
      return sum_masked_terms<K2<T>>(log_p, log_q, mask, n);
    case KlEstimator::k3:
      return sum_masked_terms<K3<T>>(log_p, log_q, mask, n);
    case KlEstimator::weighted:
      return sum_masked_terms<Weighted<T>>(log_p, log_q, mask, n);
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
