// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// sin(x) and cos(x) in double. With n the nearest integer to x / (pi/2) and r = x - n pi/2,
//   sin(r) = r + r**3 S(r**2)   and   cos(r) = 1 - r**2 / 2 + r**4 C(r**2),
// S and C minimax polynomials on [-pi/4, pi/4]; n mod 4 says which of them is which, and the signs.

struct SinCosConstants {
  static constexpr double kTwoOverPi = 0.6366197723675814;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2**52: adding it rounds
  // pi/2 in three parts. The first two have 33 bits, so that their products with n are exact.
  static constexpr double kPart1 = 0x1.921fb544p+0;
  static constexpr double kPart2 = 0x1.0b4611a6p-34;
  static constexpr double kPart3 = 0x1.3198a2e037073p-69;
  static constexpr double kLargest = 1e6;  // n below 2**20; beyond, the C library takes over
  static constexpr double kSin[] = {1.589681178717876e-10,  -2.5050758384205297e-08,
                                    2.7557313693571873e-06, -0.00019841269829812378,
                                    0.008333333333322418,   -0.16666666666666632};
  static constexpr double kCos[] = {-1.1359658833775122e-11, 2.0875723478832047e-09,
                                    -2.7557314353787655e-07, 2.480158728948701e-05,
                                    -0.0013888888888874131,  0.0416666666666666};
};

struct SinCos {
  Vector<double> sin, cos;
};

// Lane by lane: what a lane gives does not depend on its neighbors.
__attribute__((noinline, cold)) void sin_cos_far(Vector<double> x, Longs far, SinCos* result) {
  for (std::size_t i = 0; i < Simd<double>::kWidth; ++i) {
    if (far[i] == 0) continue;
    result->sin[i] = __builtin_sin(x[i]);
    result->cos[i] = __builtin_cos(x[i]);
  }
}

inline SinCos sin_cos(Vector<double> x) {
  using C = SinCosConstants;
  using V = Vector<double>;
  const V rounded =
      multiply_add(x, broadcast<double>(C::kTwoOverPi), broadcast<double>(C::kRounder));
  const V n = rounded - C::kRounder;
  const V r = ((x - n * C::kPart1) - n * C::kPart2) - n * C::kPart3;
  const V z = r * r;
  V sin_tail = broadcast<double>(C::kSin[0]), cos_tail = broadcast<double>(C::kCos[0]);
#pragma GCC unroll 5
  for (int i = 1; i < 6; ++i) {
    sin_tail = multiply_add(sin_tail, z, broadcast<double>(C::kSin[i]));
    cos_tail = multiply_add(cos_tail, z, broadcast<double>(C::kCos[i]));
  }
  const V sin_r = multiply_add(r * z, sin_tail, r);
  // 1 - z/2 is rounded; what it lost is added to the small terms.
  const V half = 0.5 * z, near = 1.0 - half;
  const V cos_r = near + multiply_add(z * z, cos_tail, (1.0 - near) - half);

  // The lowest bits of `rounded` are those of n: the first swaps, the second changes signs.
  const Longs quadrant = __builtin_bit_cast(Longs, rounded);
  const Longs swaps = (quadrant & 1) != 0;
  const Longs sin_sign = (quadrant & 2) << 62, cos_sign = ((quadrant + 1) & 2) << 62;
  const auto flip = [](V value, Longs sign) {
    return __builtin_bit_cast(V, __builtin_bit_cast(Longs, value) ^ sign);
  };
  SinCos result = {flip(swaps ? cos_r : sin_r, sin_sign), flip(swaps ? sin_r : cos_r, cos_sign)};

  const Longs far = ~((x < C::kLargest) & (x > -C::kLargest));
  if (__builtin_expect(any(far), 0)) sin_cos_far(x, far, &result);
  return result;
}

inline void sin_cos_array(const double* x, std::size_t n, double* sin, double* cos) {
  constexpr std::size_t kWidth = Simd<double>::kWidth;
  for (std::size_t i = 0; i < n; i += kWidth) {
    const std::size_t bytes = (n - i < kWidth ? n - i : kWidth) * sizeof(double);
    Vector<double> lanes = {};
    __builtin_memcpy(&lanes, x + i, bytes);
    const SinCos both = sin_cos(lanes);
    __builtin_memcpy(sin + i, &both.sin, bytes);
    __builtin_memcpy(cos + i, &both.cos, bytes);
  }
}
