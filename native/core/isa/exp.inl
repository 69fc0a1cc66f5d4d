// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// exp(x) = 2**n * exp(r) with r = x - n ln 2 in [-ln2/2, ln2/2] and exp(r) = 1 + r + r*r*P(r), P a
// minimax polynomial.

template <typename T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  using Bits = std::uint32_t;
  typedef Bits BitsVector __attribute__((vector_size(kVectorBytes)));
  static constexpr float kLowest = -104.0f, kHighest = 89.0f;  // beyond these: 0 and inf
  static constexpr float kLog2E = 1.44269504088896341f;
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2**23: adding it rounds to an integer
  static constexpr Bits kRounderBits = 0x4B400000u;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kExponentBias = 127;
  static constexpr float kPolynomial[] = {1.9891247314e-4f, 1.3933880963e-3f, 8.3333106938e-3f,
                                          4.1666462839e-2f, 1.6666666682e-1f, 0.5f};
};

template <>
struct ExpConstants<double> {
  using Bits = std::uint64_t;
  typedef Bits BitsVector __attribute__((vector_size(kVectorBytes)));
  static constexpr double kLowest = -746.0, kHighest = 710.0;
  static constexpr double kLog2E = 1.44269504088896341;
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2**52
  static constexpr Bits kRounderBits = 0x4338000000000000u;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kExponentBias = 1023;
  static constexpr double kPolynomial[] = {2.0914882563485069e-9,
                                           2.5105490906986695e-8,
                                           2.7557273171941028e-7,
                                           2.7557254740405415e-6,
                                           2.4801587325920162e-5,
                                           1.9841269875342142e-4,
                                           1.3888888888883642e-3,
                                           8.3333333333259856e-3,
                                           4.1666666666666670e-2,
                                           1.6666666666666671e-1,
                                           0.5};
};

template <typename T>
inline Vector<T> broadcast(T x) {
  const Vector<T> zero = {};
  return zero + x;
}

// The pieces of exp(x): n as a number, r, r*r*P(r), and 2**n as a product of two representable
// factors (2**128 and denormal results need both).
template <typename T>
struct ExpPieces {
  Vector<T> n, r, tail, scale1, scale2;
};

template <typename T>
inline ExpPieces<T> exp_pieces(Vector<T> x) {
  using C = ExpConstants<T>;
  using V = Vector<T>;
  using Bits = typename C::BitsVector;
  const V lowest = broadcast<T>(C::kLowest), highest = broadcast<T>(C::kHighest);
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  ExpPieces<T> e;
  const V rounded = multiply_add(x, broadcast<T>(C::kLog2E), broadcast<T>(C::kRounder));
  e.n = rounded - C::kRounder;
  e.r = multiply_add(e.n, broadcast<T>(-C::kLn2High), x);
  e.r = multiply_add(e.n, broadcast<T>(-C::kLn2Low), e.r);
  const V squared = e.r * e.r;
  // Two interleaved Horner schemes in r*r halve the chain of dependent operations.
  constexpr std::size_t kTerms = sizeof(C::kPolynomial) / sizeof(T);
  V even = broadcast<T>(C::kPolynomial[0]), odd = broadcast<T>(C::kPolynomial[1]);
#pragma GCC unroll 16
  for (std::size_t i = 2; i < kTerms; ++i) {
    V& half = i % 2 == 0 ? even : odd;
    half = multiply_add(half, squared, broadcast<T>(C::kPolynomial[i]));
  }
  const V polynomial =
      kTerms % 2 == 0 ? multiply_add(even, e.r, odd) : multiply_add(odd, e.r, even);
  e.tail = squared * polynomial;
  // n + 2048 is positive, so that a logical shift halves it.
  const Bits biased = __builtin_bit_cast(Bits, rounded) - (C::kRounderBits - 2048u);
  const Bits half = biased >> 1;
  const Bits exponent1 = half + (C::kExponentBias - 1024u);
  const Bits exponent2 = (biased - half) + (C::kExponentBias - 1024u);
  e.scale1 = __builtin_bit_cast(V, exponent1 << C::kMantissaBits);
  e.scale2 = __builtin_bit_cast(V, exponent2 << C::kMantissaBits);
  return e;
}

template <typename T>
inline Vector<T> exp_of(Vector<T> x) {
  const ExpPieces<T> e = exp_pieces<T>(x);
  return ((e.r + e.tail) + T(1)) * e.scale1 * e.scale2;
}

template <typename T>
void exp_array(const T* x, std::size_t n, T* out) {
  constexpr std::size_t kWidth = Simd<T>::kWidth;
  std::size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, exp_of<T>(load(x + i)));
  if (i == n) return;
  Vector<T> rest = {};
  __builtin_memcpy(&rest, x + i, (n - i) * sizeof(T));
  rest = exp_of<T>(rest);
  __builtin_memcpy(out + i, &rest, (n - i) * sizeof(T));
}
