// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// Matrix products of the sizes that small networks have. A tile of C stays in registers while k
// runs; the columns of B that it needs lie in a panel that fits into the first cache: packed, or
// where they are in B if that is as good.

constexpr std::size_t kFloats = Simd<float>::kWidth;
constexpr std::size_t kPanel = 2 * kFloats;  // columns of a tile
constexpr std::size_t kNarrow = 96;          // floats of a row of B that need not be packed
#if defined(__AVX512F__)
constexpr std::size_t kTileRows = 12;  // 24 of 32 registers hold the tile
#else
constexpr std::size_t kTileRows = 6;  // 12 of 16
#endif

inline Vector<float> repeat(const float* x) {
#if defined(__AVX512F__)
  return (Vector<float>)_mm512_set1_ps(*x);
#elif defined(__AVX2__)
  return (Vector<float>)_mm256_broadcast_ss(x);  // adding x to zeros would be an addition
#elif defined(__SSE2__)
  return (Vector<float>)_mm_set1_ps(*x);
#else
  return Vector<float>{*x, *x, *x, *x};
#endif
}

// Columns of B, of which row k is at data + k * row.
struct Panel {
  const float* data;
  std::size_t row;
};

// `kRows` rows of A, at a + row * a_row + k * a_column, times a panel.
template <std::size_t kRows>
[[gnu::always_inline]] inline void tile(std::size_t n_k, const float* a, std::size_t a_row,
                                        std::size_t a_column, const Panel& panel, float* c,
                                        std::size_t c_row, bool add) {
  Vector<float> sums[kRows][2];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = Vector<float>{};
  for (std::size_t k = 0; k < n_k; ++k) {
    const Vector<float> left = load(panel.data + k * panel.row);
    const Vector<float> right = load(panel.data + k * panel.row + kFloats);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector<float> x = repeat(a + r * a_row + k * a_column);
      sums[r][0] = multiply_add(x, left, sums[r][0]);
      sums[r][1] = multiply_add(x, right, sums[r][1]);
    }
  }
  // Unrolled like the loop above: a loop over the sums would put them into memory.
  if (add) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      sums[r][0] += load(c + r * c_row);
      sums[r][1] += load(c + r * c_row + kFloats);
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
    store(c + r * c_row, sums[r][0]);
    store(c + r * c_row + kFloats, sums[r][1]);
  }
}

// Where a tile of C goes: element (r, i) is data[r * row + i * column], of n columns.
struct Target {
  float* data;
  std::size_t row, column, n;
  bool add;
};

// The same of a panel of which only some columns are wanted, or that goes across memory.
template <std::size_t kRows>
void any_tile(std::size_t n_k, const float* a, std::size_t a_row, std::size_t a_column,
              const Panel& panel, const Target& c) {
  if (c.n == kPanel && c.column == 1) {
    return tile<kRows>(n_k, a, a_row, a_column, panel, c.data, c.row, c.add);
  }
  float whole[kRows * kPanel];
  tile<kRows>(n_k, a, a_row, a_column, panel, whole, kPanel, false);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < c.n; ++i) {
      float& target = c.data[r * c.row + i * c.column];
      target = whole[r * kPanel + i] + (c.add ? target : 0.0f);
    }
  }
}

template <std::size_t kRows>
void tile_of_rows(std::size_t rows, std::size_t n_k, const float* a, std::size_t a_row,
                  std::size_t a_column, const Panel& panel, const Target& c) {
  if (rows == kRows) return any_tile<kRows>(n_k, a, a_row, a_column, panel, c);
  if constexpr (kRows > 1) {
    tile_of_rows<kRows - 1>(rows, n_k, a, a_row, a_column, panel, c);
  }
}

#if defined(__AVX2__)
// An 8 x 8 block, columns to rows.
inline void transpose_block(const float* from, std::size_t from_row, float* to,
                            std::size_t to_row) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * from_row);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_row, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
constexpr std::size_t kBlock = 8;
#else
inline void transpose_block(const float* from, std::size_t from_row, float* to,
                            std::size_t to_row) {
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) to[j * to_row + i] = from[i * from_row + j];
  }
}
constexpr std::size_t kBlock = 4;
#endif

// n columns of B from `first` on, as [k, kPanel] with zeros behind.
inline void pack_panel(const MatrixView& b, std::size_t n_k, std::size_t first, std::size_t n,
                       float* panel) {
  if (n == kPanel && b.column == 1) {
    for (std::size_t k = 0; k < n_k; ++k) {
      const float* from = b.data + k * b.row + first;
      store(panel + k * kPanel, load(from));
      store(panel + k * kPanel + kFloats, load(from + kFloats));
    }
    return;
  }
  std::size_t k = 0;
  if (n == kPanel && b.row == 1) {
    for (; k + kBlock <= n_k; k += kBlock) {
      for (std::size_t i = 0; i < kPanel; i += kBlock) {
        transpose_block(b.data + (first + i) * b.column + k, b.column, panel + k * kPanel + i,
                        kPanel);
      }
    }
  }
  for (; k < n_k; ++k) {
    for (std::size_t i = 0; i < kPanel; ++i) {
      panel[k * kPanel + i] = i < n ? b.data[k * b.row + (first + i) * b.column] : 0.0f;
    }
  }
}

// Few rows, of which packing a panel would cost more than using it: dot products along memory.
constexpr std::size_t kFewRows = 4;

inline bool are_few_rows(std::size_t m, const MatrixView& a, const MatrixView& b) {
  return m <= kFewRows && a.column == 1 && b.row == 1;
}

// kRows rows of A times kColumns columns of B; element (r, i) of C at c + r * c_row + i * c_column.
template <std::size_t kRows, std::size_t kColumns>
[[gnu::always_inline]] inline void dots(std::size_t n_k, const float* a, std::size_t a_row,
                                        const float* b, std::size_t b_column, const Target& c) {
  Vector<float> sums[kRows][kColumns];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kColumns; ++i) sums[r][i] = Vector<float>{};
  }
  std::size_t k = 0;
  for (; k + kFloats <= n_k; k += kFloats) {
#pragma GCC unroll 4
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector<float> x = load(a + r * a_row + k);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kColumns; ++i) {
        sums[r][i] = multiply_add(x, load(b + i * b_column + k), sums[r][i]);
      }
    }
  }
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      float sum = sum_lanes<float>(sums[r][i]);
      for (std::size_t rest = k; rest < n_k; ++rest)
        sum += a[r * a_row + rest] * b[i * b_column + rest];
      float& target = c.data[r * c.row + i * c.column];
      target = sum + (c.add ? target : 0.0f);
    }
  }
}

template <std::size_t kRows>
void dots_of_rows(std::size_t m, std::size_t n, std::size_t n_k, const MatrixView& a,
                  const MatrixView& b, const Target& c) {
  if (m == kRows) {
    constexpr std::size_t kColumns = 4;
    Target part = c;
    std::size_t j = 0;
    for (; j + kColumns <= n; j += kColumns) {
      dots<kRows, kColumns>(n_k, a.data, a.row, b.data + j * b.column, b.column, part);
      part.data += kColumns * c.column;
    }
    for (; j < n; ++j) {
      dots<kRows, 1>(n_k, a.data, a.row, b.data + j * b.column, b.column, part);
      part.data += c.column;
    }
  } else if constexpr (kRows > 1) {
    dots_of_rows<kRows - 1>(m, n, n_k, a, b, c);
  }
}

std::size_t product_work(std::size_t n_k) { return kPanel * n_k; }

// C [m, n] at c + i * c_row + j * c_column.
void product_into(std::size_t m, std::size_t n, std::size_t n_k, const MatrixView& a,
                  const MatrixView& b, float* c, std::size_t c_row, std::size_t c_column, bool add,
                  float* work) {
  if (are_few_rows(m, a, b)) {
    return dots_of_rows<kFewRows>(m, n, n_k, a, b, {c, c_row, c_column, n, add});
  }
  const bool lies_well = b.column == 1 && (m <= kTileRows || b.row <= kNarrow);
  for (std::size_t j = 0; j < n; j += kPanel) {
    const std::size_t columns = n - j < kPanel ? n - j : kPanel;
    const bool packed = !lies_well || columns < kPanel;
    if (packed) pack_panel(b, n_k, j, columns, work);
    const Panel panel = packed ? Panel{work, kPanel} : Panel{b.data + j, b.row};
    for (std::size_t i = 0; i < m; i += kTileRows) {
      const std::size_t rows = m - i < kTileRows ? m - i : kTileRows;
      const Target target = {c + i * c_row + j * c_column, c_row, c_column, columns, add};
      tile_of_rows<kTileRows>(rows, n_k, a.data + i * a.row, a.row, a.column, panel, target);
    }
  }
}

inline std::size_t whole_panels(std::size_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

void product(const Product& p, float* panel) {
  // Turned round, every tile is scattered into C: that must save more than a little.
  if (8 * whole_panels(p.n) * p.m <= 9 * whole_panels(p.m) * p.n) {
    product_into(p.m, p.n, p.k, p.a, p.b, p.c, p.c_row, 1, p.add, panel);
  } else {  // few columns would leave most of a panel empty: C' = B' A'
    product_into(p.n, p.m, p.k, {p.b.data, p.b.column, p.b.row}, {p.a.data, p.a.column, p.a.row},
                 p.c, 1, p.c_row, p.add, panel);
  }
}
