// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

template <typename T>
void column_moments(const T* batch, std::size_t n, std::size_t dims, double* __restrict mean,
                    double* __restrict m2) {
  if (dims == 1) {
    const double first = static_cast<double>(batch[0]);
    mean[0] = first + shifted_sum<1>(batch, n, first) / static_cast<double>(n);
    m2[0] = shifted_sum<2>(batch, n, mean[0]);
    return;
  }
  // Sums are taken around the first row: a large common offset costs no digit.
  for (std::size_t j = 0; j < dims; ++j) mean[j] = 0;
  for (std::size_t i = 1; i < n; ++i) {
    const T* __restrict row = batch + i * dims;
    for (std::size_t j = 0; j < dims; ++j) {
      mean[j] += static_cast<double>(row[j]) - static_cast<double>(batch[j]);
    }
  }
  for (std::size_t j = 0; j < dims; ++j) {
    mean[j] = static_cast<double>(batch[j]) + mean[j] / static_cast<double>(n);
    m2[j] = 0;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const T* __restrict row = batch + i * dims;
    for (std::size_t j = 0; j < dims; ++j) {
      const double deviation = static_cast<double>(row[j]) - mean[j];
      m2[j] += deviation * deviation;
    }
  }
}

template <typename T>
void normalize(const T* x, std::size_t n, std::size_t dims, const double* __restrict mean,
               const double* __restrict scale, double clip, T* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const T* __restrict row = x + i * dims;
    T* __restrict out_row = out + i * dims;
    for (std::size_t j = 0; j < dims; ++j) {
      double y = (static_cast<double>(row[j]) - mean[j]) * scale[j];
      y = y > clip ? clip : y;
      y = y < -clip ? -clip : y;
      out_row[j] = static_cast<T>(y);
    }
  }
}

template <typename T>
void polyak(T* __restrict target, const T* __restrict source, std::size_t n, T tau) {
  for (std::size_t i = 0; i < n; ++i) target[i] = target[i] + tau * (source[i] - target[i]);
}
