// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).
//
// The sums are those of product.inl, in the same order.

// `kRows` outputs of a layer for `kVectors` vectors of rows.
template <typename Activation, std::size_t kRows, std::size_t kVectors>
void dense_tile(const DenseColumns& layer, std::size_t row, std::size_t column) {
  const float* weight = layer.weight + row * layer.n_in;
  const float* x = layer.x + column;
  Vector<float> sums[kRows][kVectors];
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) sums[r][v] = Vector<float>{};
  }
  for (std::size_t k = 0; k < layer.n_in; ++k, x += layer.stride) {
    Vector<float> inputs[kVectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) inputs[v] = load(x + v * kFloats);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRows; ++r) {
      const Vector<float> w = repeat(weight + r * layer.n_in + k);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < kVectors; ++v) {
        sums[r][v] = multiply_add(w, inputs[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < kRows; ++r) {
    const Vector<float> bias = repeat(layer.bias + row + r);
#pragma GCC unroll 2
    for (std::size_t v = 0; v < kVectors; ++v) {
      store(layer.y + (row + r) * layer.stride + column + v * kFloats,
            Activation::of(sums[r][v] + bias));
    }
  }
}

template <typename Activation, std::size_t kRows, std::size_t kVectors>
void dense_rest(const DenseColumns& layer, std::size_t n, std::size_t row, std::size_t column) {
  if (n == kRows) return dense_tile<Activation, kRows, kVectors>(layer, row, column);
  if constexpr (kRows > 1) dense_rest<Activation, kRows - 1, kVectors>(layer, n, row, column);
}

template <typename Activation, std::size_t kVectors>
void dense_columns_of(const DenseColumns& layer) {
  for (std::size_t column = 0; column < layer.stride; column += kVectors * kFloats) {
    std::size_t row = 0;
    for (; row + kTileRows <= layer.n_out; row += kTileRows) {
      dense_tile<Activation, kTileRows, kVectors>(layer, row, column);
    }
    if (row < layer.n_out) {
      dense_rest<Activation, kTileRows, kVectors>(layer, layer.n_out - row, row, column);
    }
  }
}

template <typename Activation>
void dense_columns(const DenseColumns& layer) {
  if (layer.stride % (2 * kFloats) == 0) return dense_columns_of<Activation, 2>(layer);
  dense_columns_of<Activation, 1>(layer);
}
