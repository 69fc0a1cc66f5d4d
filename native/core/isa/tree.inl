// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// Every operation has one fixed order, so that all instruction sets give the same bits.

constexpr std::size_t kFanout = 16;

typedef float Float4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));

inline Float4 load4(const float* p) {
  Float4 x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}

inline Double2 load2_wide(const float* p) {
#ifdef __SSE2__
  // The conversion of two at once, which compilers do not find in the other form.
  return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  return Double2{static_cast<double>(p[0]), static_cast<double>(p[1])};
#endif
}

inline float block_sum(const float* block) {
  const Double2 s = ((load2_wide(block) + load2_wide(block + 2)) +
                     (load2_wide(block + 4) + load2_wide(block + 6))) +
                    ((load2_wide(block + 8) + load2_wide(block + 10)) +
                     (load2_wide(block + 12) + load2_wide(block + 14)));
  return static_cast<float>(s[0] + s[1]);
}

inline Float4 positive_or_infinity(Float4 x) {
  const float inf = __builtin_inff();
  const Float4 infinity = {inf, inf, inf, inf};
  return x > 0.0f ? x : infinity;
}

inline Float4 smaller(Float4 a, Float4 b) { return a < b ? a : b; }

// The smallest positive value of a block, 0 when there is none.
inline float block_min(const float* block) {
  const Float4 m = smaller(
      smaller(positive_or_infinity(load4(block)),  //
              positive_or_infinity(load4(block + 4))),
      smaller(positive_or_infinity(load4(block + 8)), positive_or_infinity(load4(block + 12))));
  const float a = m[0] < m[2] ? m[0] : m[2];
  const float b = m[1] < m[3] ? m[1] : m[3];
  const float least = a < b ? a : b;
  return least < __builtin_inff() ? least : 0.0f;
}

inline void refresh_node(const TreeLevel& children, const TreeLevel& parents, std::size_t node) {
  parents.sums[node] = block_sum(children.sums + node * kFanout);
  parents.mins[node] = block_min(children.mins + node * kFanout);
}

void refresh_path(const TreeLevel* levels, std::size_t depth, std::size_t slot) {
  for (std::size_t level = 1; level < depth; ++level) {
    slot /= kFanout;
    const float sum = levels[level].sums[slot];
    const float min = levels[level].mins[slot];
    refresh_node(levels[level - 1], levels[level], slot);
    if (levels[level].sums[slot] == sum && levels[level].mins[slot] == min) {
      return;
    }
  }
}

void refresh_nodes(const TreeLevel& children, const TreeLevel& parents, const std::uint64_t* nodes,
                   std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    refresh_node(children, parents, nodes[i]);
  }
}

void refresh_range(const TreeLevel& children, const TreeLevel& parents, std::size_t first,
                   std::size_t last) {
  for (std::size_t node = first; node <= last; ++node) {
    refresh_node(children, parents, node);
  }
}

// Targets on their way down: the node that each has reached, how far behind the start of that node
// it lies, and the sum of that node.
struct Descent {
  static constexpr std::size_t kChunk = 256;
  std::uint64_t* nodes;
  double inside[kChunk];
  double sums[kChunk];
};

// Rounding can lead past the end of a block or onto a child of 0. Then the end of the last positive
// child before is meant, or the start of the first one when there is none.
__attribute__((noinline)) void move_to_positive(const float* children, std::size_t i,
                                                Descent& descent) {
  const std::size_t reached = descent.nodes[i];
  const std::size_t first = reached / kFanout * kFanout;
  std::size_t child = first;
  for (std::size_t c = first; c < first + kFanout; ++c) {
    if (children[c] > 0.0f && (c < reached || !(children[child] > 0.0f))) {
      child = c;
    }
  }
  descent.nodes[i] = child;
  descent.sums[i] = static_cast<double>(children[child]);
  descent.inside[i] = child < reached ? descent.sums[i] : 0.0;
}

// From a node to one of four groups of its children. Below the top the target comes from the node's
// stored sum, which is rounded to float32: it is scaled to the sum of the children, so that it
// cannot fall off their end.
template <bool kIsTop>
void to_groups(const float* children, std::size_t n, Descent& descent) {
  for (std::size_t i = 0; i < n; ++i) {
    double starts[4];
    double end = 0.0;
    for (std::size_t g = 0; g < 4; ++g) {
      const float* x = children + (kIsTop ? 0 : descent.nodes[i] * kFanout) + 4 * g;
      starts[g] = end;
      end += (static_cast<double>(x[0]) + static_cast<double>(x[1])) +
             (static_cast<double>(x[2]) + static_cast<double>(x[3]));
    }
    double target = descent.inside[i];
    if (!kIsTop) {
      target += target / descent.sums[i] * (end - descent.sums[i]);
    }
    const std::size_t group = std::size_t{starts[1] <= target} + std::size_t{starts[2] <= target} +
                              std::size_t{starts[3] <= target};
    descent.nodes[i] = (kIsTop ? 0 : descent.nodes[i] * 4) + group;
    descent.inside[i] = target - starts[group];
  }
}

// From a group to one of its four children.
void to_children(const float* children, const float* next, std::size_t n, Descent& descent) {
  for (std::size_t i = 0; i < n; ++i) {
    const float* x = children + descent.nodes[i] * 4;
    const double target = descent.inside[i];
    const double first = static_cast<double>(x[0]);
    const double second = first + static_cast<double>(x[1]);
    const double third = second + static_cast<double>(x[2]);
    const double starts[4] = {0.0, first, second, third};
    const std::size_t k =
        std::size_t{first <= target} + std::size_t{second <= target} + std::size_t{third <= target};
    descent.nodes[i] = descent.nodes[i] * 4 + k;
    descent.inside[i] = target - starts[k];
    descent.sums[i] = static_cast<double>(x[k]);
    if (__builtin_expect(!(x[k] > 0.0f), 0)) {
      move_to_positive(children, i, descent);
    }
    if (next != nullptr) {
      __builtin_prefetch(next + descent.nodes[i] * kFanout);
    }
  }
}

// Each level is two short loops over the whole batch: the long chain of one target's steps would
// hold up the others.
void tree_find(const TreeLevel* levels, std::size_t depth, const double* targets, std::size_t n,
               std::uint64_t* slots) {
  Descent descent;
  for (std::size_t begin = 0; begin < n; begin += Descent::kChunk) {
    const std::size_t count = n - begin < Descent::kChunk ? n - begin : Descent::kChunk;
    descent.nodes = slots + begin;
    __builtin_memcpy(descent.inside, targets + begin, count * sizeof(double));
    to_groups<true>(levels[depth - 1].sums, count, descent);
    for (std::size_t level = depth - 1; level > 0; --level) {
      to_children(levels[level].sums, levels[level - 1].sums, count, descent);
      to_groups<false>(levels[level - 1].sums, count, descent);
    }
    to_children(levels[0].sums, nullptr, count, descent);
  }
}

// log2(x) of a positive normal x, to about 1e-11: x = m * 2**e with m in [sqrt(1/2), sqrt(2)), and
// log(m) = 2 atanh((m - 1) / (m + 1)) as a series.
inline double log2_positive(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E00000000u;
  constexpr std::uint64_t kOne = 0x3FF0000000000000u;
  constexpr std::uint64_t kFraction = 0x000FFFFFFFFFFFFFu;
  constexpr std::uint64_t kTwoTo52 = 0x4330000000000000u;
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x) + (kOne - kSqrtHalf);
  // An integer below 2**52 in the low bits of 2**52 is that sum: a conversion every CPU has.
  const double e = __builtin_bit_cast(double, (bits >> 52) | kTwoTo52) - (0x1p52 + 1023.0);
  const double m = __builtin_bit_cast(double, (bits & kFraction) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double q = s * s;
  const double series =
      1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q / 13)))));
  constexpr double kTwoOverLn2 = 2.8853900817779268;
  return e + kTwoOverLn2 * s * series;
}

// 2**y for |y| <= 1000, to about 1e-10 relative: the power series of 2**r for the part beside the
// nearest integer, which is then added to the exponent.
inline double exp2_bounded(double y) {
  constexpr double kRound = 0x1.8p52;
  const double shifted = y + kRound;
  constexpr double kLn2 = 0.6931471805599453;
  const double r = (y - (shifted - kRound)) * kLn2;
  const double series =
      1.0 +
      r * (1.0 + r * (1.0 / 2 +
                      r * (1.0 / 6 +
                           r * (1.0 / 24 + r * (1.0 / 120 +
                                                r * (1.0 / 720 + r * (1.0 / 5040 + r / 40320)))))));
  return __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, series) +
                                        (__builtin_bit_cast(std::uint64_t, shifted) << 52));
}

inline double clamp(double x, double low, double high) {
  const double raised = x > low ? x : low;
  return raised < high ? raised : high;
}

inline double power_of(double x, double exponent) {
  return exp2_bounded(clamp(exponent * log2_positive(x), -1000.0, 1000.0));
}

void power(const float* x, std::size_t n, double exponent, float low, float high, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(x[i]);
    const float leaf = static_cast<float>(clamp(power_of(value, exponent), low, high));
    out[i] = x[i] > 0.0f ? leaf : 0.0f;
  }
}

void ratio_power(const float* x, std::size_t n, float smallest, double exponent, float* out) {
  const double numerator = static_cast<double>(smallest);
  for (std::size_t i = 0; i < n; ++i) {
    const float leaf = x[i] > 0.0f ? x[i] : 1.0f;
    const double ratio = numerator / static_cast<double>(leaf);
    const float weight = static_cast<float>(clamp(power_of(ratio, exponent), 0.0, 1.0));
    out[i] = x[i] > 0.0f ? weight : 0.0f;
  }
}
