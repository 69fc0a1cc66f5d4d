// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// exp(x) = 2**n * exp(r) with r = x - n ln 2 in [-ln2/2, ln2/2] and exp(r) = 1 + r + r*r*P(r), P a
// minimax polynomial. The same text serves scalars (loops that the compiler vectorises) and
// explicit vectors.

template <typename V>
struct ExpParts;

struct ExpFloat {
  using Scalar = float;
  using Bits = std::uint32_t;
  static constexpr float kLowest = -104.0f, kHighest = 89.0f;  // beyond these: 0 and inf
  static constexpr float kLog2E = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2**23: adding it rounds to an integer
  static constexpr Bits kRounderBits = 0x4B400000u;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kExponentBias = 127;

  template <typename V>
  static V polynomial(V r) {
    V p = r * 1.9891247314e-4f + 1.3933880963e-3f;
    p = p * r + 8.3333106938e-3f;
    p = p * r + 4.1666462839e-2f;
    p = p * r + 1.6666666682e-1f;
    return p * r + 0.5f;
  }
};

struct ExpDouble {
  using Scalar = double;
  using Bits = std::uint64_t;
  static constexpr double kLowest = -746.0, kHighest = 710.0;
  static constexpr double kLog2E = 1.44269504088896341;
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2**52
  static constexpr Bits kRounderBits = 0x4338000000000000u;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kExponentBias = 1023;

  template <typename V>
  static V polynomial(V r) {
    V p = r * 2.0914882563485069e-9 + 2.5105490906986695e-8;
    p = p * r + 2.7557273171941028e-7;
    p = p * r + 2.7557254740405415e-6;
    p = p * r + 2.4801587325920162e-5;
    p = p * r + 1.9841269875342142e-4;
    p = p * r + 1.3888888888883642e-3;
    p = p * r + 8.3333333333259856e-3;
    p = p * r + 4.1666666666666670e-2;
    p = p * r + 1.6666666666666671e-1;
    return p * r + 0.5;
  }
};

template <>
struct ExpParts<float> : ExpFloat {
  using BitsOf = std::uint32_t;
};
template <>
struct ExpParts<double> : ExpDouble {
  using BitsOf = std::uint64_t;
};
template <>
struct ExpParts<Vector<float>> : ExpFloat {
  typedef std::uint32_t BitsOf __attribute__((vector_size(kVectorBytes)));
};
template <>
struct ExpParts<Vector<double>> : ExpDouble {
  typedef std::uint64_t BitsOf __attribute__((vector_size(kVectorBytes)));
};

// The pieces of exp(x): n as a number, r, r*r*P(r), and 2**n as a product of two representable
// factors (2**128 and denormal results need both).
template <typename V>
struct ExpPieces {
  V n, r, tail, scale1, scale2;
};

template <typename V>
inline ExpPieces<V> exp_pieces(V x) {
  using C = ExpParts<V>;
  using Bits = typename C::BitsOf;
  const V zero = {};
  const V lowest = zero + C::kLowest;
  const V highest = zero + C::kHighest;
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  ExpPieces<V> e;
  const V rounded = x * C::kLog2E + C::kRounder;
  e.n = rounded - C::kRounder;
  e.r = (x - e.n * C::kLn2High) - e.n * C::kLn2Low;
  e.tail = e.r * e.r * C::polynomial(e.r);
  // n + 2048 is positive, so that a logical shift halves it.
  const Bits biased = __builtin_bit_cast(Bits, rounded) - (C::kRounderBits - 2048u);
  const Bits half = biased >> 1;
  e.scale1 = __builtin_bit_cast(V, (half + (C::kExponentBias - 1024u)) << C::kMantissaBits);
  e.scale2 =
      __builtin_bit_cast(V, ((biased - half) + (C::kExponentBias - 1024u)) << C::kMantissaBits);
  return e;
}

template <typename V>
inline V exp_of(V x) {
  const ExpPieces<V> e = exp_pieces(x);
  return ((e.r + e.tail) + typename ExpParts<V>::Scalar(1)) * e.scale1 * e.scale2;
}

template <typename T>
void exp_array(const T* x, std::size_t n, T* out) {
  constexpr std::size_t kWidth = Simd<T>::kWidth;
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, exp_of(load(x + i)));
  if (i == n) return;
  Vector<T> rest = {};
  __builtin_memcpy(&rest, x + i, (n - i) * sizeof(T));
  rest = exp_of(rest);
  __builtin_memcpy(out + i, &rest, (n - i) * sizeof(T));
}
