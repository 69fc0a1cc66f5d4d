// A matrix of floats whose memory is aligned and kept.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace sharpwave {

class Matrix {
 public:
  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  float* row(std::size_t i) { return data_.get() + i * n_columns_; }
  const float* row(std::size_t i) const { return data_.get() + i * n_columns_; }
  std::size_t n_rows() const { return n_rows_; }
  std::size_t n_columns() const { return n_columns_; }
  std::size_t size() const { return n_rows_ * n_columns_; }

  // Changes the shape. What was there is lost.
  void reshape(std::size_t n_rows, std::size_t n_columns) {
    const std::size_t size = n_rows * n_columns;
    if (size > capacity_) {
      constexpr std::size_t kAlignment = 64;
      const std::size_t bytes = (size * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
      auto* memory = static_cast<float*>(std::aligned_alloc(kAlignment, bytes));
      if (memory == nullptr) throw std::bad_alloc();
      data_.reset(memory);
      capacity_ = size;
    }
    n_rows_ = n_rows;
    n_columns_ = n_columns;
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };

  std::unique_ptr<float[], Free> data_;
  std::size_t capacity_ = 0, n_rows_ = 0, n_columns_ = 0;
};

}  // namespace sharpwave
