// Included once per instruction set, inside an anonymous namespace (see core/isa/kernels.hpp).
//
// What the dynamics are written with: V holds the same variable of several environments.

using V = Vector<double>;
constexpr std::size_t kWidth = Simd<double>::kWidth;

// What a step comes to.
struct Outcome {
  V reward;
  Longs terminated;  // 0 or -1
};

inline V broadcast(double x) { return sharpwave::broadcast<double>(x); }

constexpr double float32(double x) { return static_cast<double>(static_cast<float>(x)); }

inline V square_root(V x) {
#if defined(__AVX512F__)
  return (V)_mm512_maskz_sqrt_pd(0xff, (__m512d)x);
#elif defined(__AVX2__)
  return (V)_mm256_sqrt_pd((__m256d)x);
#else
  for (std::size_t i = 0; i < kWidth; ++i) x[i] = __builtin_sqrt(x[i]);
  return x;
#endif
}

// Rounded to float32.
inline V in_float32(V x) { return widen(narrow(x)); }

// Within bounds; NaN stays.
inline V held(V x, V low, V high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
inline V held(V x, double low, double high) { return held(x, broadcast(low), broadcast(high)); }

__attribute__((noinline, cold)) void floor_mod_far(V x, double divisor, Longs far, V* rest) {
  for (std::size_t i = 0; i < kWidth; ++i) {
    if (far[i] == 0) continue;
    (*rest)[i] = __builtin_fmod(x[i], divisor);
    if ((*rest)[i] < 0) (*rest)[i] += divisor;
  }
}

// The remainder in [0, divisor).
inline V floor_mod(V x, double divisor) {
  constexpr double kRounder = 6755399441055744.0, kLargest = 1e6;
  const V turns = (x / divisor + kRounder) - kRounder;  // to the nearest
  V rest = multiply_add(turns, broadcast(-divisor), x);
  rest = rest < 0.0 ? rest + divisor : rest;
  const Longs far = ~((x < kLargest) & (x > -kLargest));
  if (__builtin_expect(any(far), 0)) floor_mod_far(x, divisor, far, &rest);
  return rest;
}
