// Rows as columns: a number of every row side by side, with zeros behind (see policy_kernels.hpp).
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/isa/policy_kernels.hpp"
#include "core/learn/matrix.hpp"

namespace sharpwave {

// How many numbers a column of n rows has room for.
constexpr std::size_t whole_lanes(std::size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Columns [k, lanes] of n rows of source [., k], of which the i-th is row_of(i).
template <typename T, typename RowOf>
void to_columns(const T* source, std::size_t k, std::size_t n, RowOf&& row_of, Matrix* columns) {
  const std::size_t lanes = whole_lanes(n);
  columns->reshape(k, lanes);
  for (std::size_t j = 0; j < k; ++j) {
    float* column = columns->row(j);
    for (std::size_t i = 0; i < n; ++i) column[i] = static_cast<float>(source[row_of(i) * k + j]);
    std::fill(column + n, column + lanes, 0.0f);
  }
}

template <typename T>
void to_columns(const T* source, std::size_t k, std::size_t n, Matrix* columns) {
  to_columns(source, k, n, [](std::size_t i) { return i; }, columns);
}

// x [n, k] from columns.
template <typename T>
void to_rows(const Matrix& columns, std::size_t n, T* x) {
  const std::size_t k = columns.n_rows();
  for (std::size_t j = 0; j < k; ++j) {
    const float* column = columns.row(j);
    for (std::size_t i = 0; i < n; ++i) x[i * k + j] = static_cast<T>(column[i]);
  }
}

}  // namespace sharpwave
