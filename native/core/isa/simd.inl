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

inline Vector<double> load_double(const double* from) { return load(from); }

inline Vector<double> load_double(const float* from) {
  HalfFloats half;
  __builtin_memcpy(&half, from, sizeof(half));
  return __builtin_convertvector(half, Vector<double>);
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
