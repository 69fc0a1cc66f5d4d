// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// Vectors as wide as the instruction set allows, in the vector extension that GCC and Clang share.

#if defined(__AVX512F__)
constexpr std::size_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

template <typename T>
struct Simd;

template <>
struct Simd<float> {
  static constexpr std::size_t kWidth = kVectorBytes / sizeof(float);
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
};

template <>
struct Simd<double> {
  static constexpr std::size_t kWidth = kVectorBytes / sizeof(double);
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
};

template <typename T>
using Vector = typename Simd<T>::Vector;

typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));

// As many integers as there are doubles; also what a comparison of doubles gives, 0 or -1 a lane.
typedef std::int64_t Longs __attribute__((vector_size(kVectorBytes)));

template <typename T>
Vector<T> load(const T* from) {
  Vector<T> vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename T>
void store(T* to, Vector<T> vector) {
  __builtin_memcpy(to, &vector, sizeof(vector));
}

// GCC 12 makes scalar code of __builtin_convertvector to wider lanes, and contraction is off for
// plain expressions: the intrinsics say what is meant.
#if defined(__AVX512F__)
inline Vector<double> widen(HalfFloats half) {
  return (Vector<double>)_mm512_maskz_cvtps_pd(0xff, (__m256)half);
}
inline HalfFloats narrow(Vector<double> wide) {
  return (HalfFloats)_mm512_maskz_cvtpd_ps(0xff, (__m512d)wide);
}
inline bool any(Longs mask) { return _mm512_movepi64_mask((__m512i)mask) != 0; }
inline Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
inline Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
}
#elif defined(__AVX2__)
inline Vector<double> widen(HalfFloats half) {
  return (Vector<double>)_mm256_cvtps_pd((__m128)half);
}
inline HalfFloats narrow(Vector<double> wide) { return (HalfFloats)_mm256_cvtpd_ps((__m256d)wide); }
inline bool any(Longs mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
inline Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
  return (Vector<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
  return (Vector<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
#else
inline Vector<double> widen(HalfFloats half) {
  return __builtin_convertvector(half, Vector<double>);
}
inline HalfFloats narrow(Vector<double> wide) { return __builtin_convertvector(wide, HalfFloats); }
inline bool any(Longs mask) { return (mask[0] | mask[1]) != 0; }
template <typename V>
inline V multiply_add(V a, V b, V c) {
  return a * b + c;
}
#endif

inline Vector<double> load_double(const double* from) { return load(from); }

inline Vector<double> load_double(const float* from) {
  HalfFloats half;
  __builtin_memcpy(&half, from, sizeof(half));
  return widen(half);
}

template <typename T>
T sum_lanes(Vector<T> vector) {
  T sum = 0;
  for (std::size_t i = 0; i < Simd<T>::kWidth; ++i) sum += vector[i];
  return sum;
}

template <int kShift, typename V, std::size_t... kLane>
V shift_lanes(V vector, V fill, std::index_sequence<kLane...>) {
  return __builtin_shufflevector(vector, fill, (kLane + kShift)...);
}

// Lane i of the result is lane i + kShift of `vector`; the last kShift lanes come from `fill`.
template <int kShift, typename T>
Vector<T> shift_lanes(Vector<T> vector, Vector<T> fill) {
  return shift_lanes<kShift>(vector, fill, std::make_index_sequence<Simd<T>::kWidth>());
}
