// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// log(x) = n ln 2 + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)) and log(1 + f) = f - f*f/2 +
// f*f*f*P(f), P a minimax polynomial.

// Of positive normal numbers; NaN stays NaN.
inline Vector<float> log_of(Vector<float> x) {
  typedef std::int32_t Ints __attribute__((vector_size(kVectorBytes)));
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kPolynomial[] = {-0.0763446f,  0.12761563f, -0.13160188f, 0.1420176f,
                                   -0.16623357f, 0.20001227f, -0.2500082f,  0.3333333f};
  const Ints bits = __builtin_bit_cast(Ints, x);
  const Ints exponent = (bits - 0x3f3504f3) >> 23;  // those are the bits of sqrt(1/2)
  const Vector<float> n = __builtin_convertvector(exponent, Vector<float>);
  const Vector<float> f = __builtin_bit_cast(Vector<float>, bits - (exponent << 23)) - 1.0f;
  const Vector<float> squared = f * f;
  Vector<float> p = broadcast(kPolynomial[0]);
#pragma GCC unroll 8
  for (std::size_t i = 1; i < 8; ++i) p = multiply_add(p, f, broadcast(kPolynomial[i]));
  Vector<float> rest = p * f * squared;
  rest = multiply_add(n, broadcast(kLn2Low), rest);
  rest = multiply_add(squared, broadcast(-0.5f), rest);
  const Vector<float> log = multiply_add(n, broadcast(kLn2High), f + rest);
  return x == x ? log : x;
}
