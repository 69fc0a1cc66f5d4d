#include "core/learn/heads.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

constexpr double kLogSqrt2Pi = 0.91893853320467274178;
constexpr float kForbiddenLogit = -1e8f;

// x [n, k] as columns, with zeros behind.
void to_columns(const float* x, std::size_t n, std::size_t k, Matrix* columns) {
  const std::size_t lanes = whole_lanes(n);
  columns->reshape(k, lanes);
  for (std::size_t j = 0; j < k; ++j) {
    float* column = columns->row(j);
    for (std::size_t i = 0; i < n; ++i) column[i] = x[i * k + j];
    std::fill(column + n, column + lanes, 0.0f);
  }
}

void to_rows(const Matrix& columns, std::size_t n, float* x) {
  const std::size_t k = columns.n_rows();
  for (std::size_t j = 0; j < k; ++j) {
    const float* column = columns.row(j);
    for (std::size_t i = 0; i < n; ++i) x[i * k + j] = column[i];
  }
}

void fill(Matrix* matrix, std::size_t n, float value) {
  matrix->reshape(1, n);
  std::fill(matrix->data(), matrix->data() + matrix->size(), value);
}

class Choices : public Head {
 public:
  explicit Choices(std::vector<std::size_t> options)
      : Head(std::accumulate(options.begin(), options.end(), std::size_t{0}), options.size(), 0),
        options_(std::move(options)) {}

  void forward(const HeadRows& rows, const float* output, const float*,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, rows.n, n_outputs(), &memory->outputs);
    memory->grads.reshape(n_outputs(), lanes);
    memory->entropies.reshape(options_.size(), lanes);
    fill(&memory->log_prob, lanes, 0.0f);
    fill(&memory->entropy, lanes, 0.0f);
    float* total = memory->entropy.data();
    for (std::size_t i = 0, first = 0; i < options_.size(); first += options_[i++]) {
      float* entropy = memory->entropies.row(i);
      kernels().policy.choice_forward(choice(rows, i, first), memory->outputs.row(first),
                                      memory->grads.row(first), entropy, memory->log_prob.data(),
                                      lanes);
      for (std::size_t row = 0; row < lanes; ++row) total[row] += entropy[row];
    }
  }

  void backward(const HeadRows& rows, const Slopes& slopes, const float*, float* output_grad,
                float*, HeadMemory* memory) const override {
    for (std::size_t i = 0, first = 0; i < options_.size(); first += options_[i++]) {
      kernels().policy.choice_backward(choice(rows, i, first), memory->outputs.row(first),
                                       memory->grads.row(first), memory->entropies.row(i), slopes,
                                       whole_lanes(rows.n));
    }
    to_rows(memory->grads, rows.n, output_grad);
  }

 private:
  Choice choice(const HeadRows& rows, std::size_t i, std::size_t first) const {
    return {.n_options = options_[i],
            .stride = whole_lanes(rows.n),
            .actions = rows.actions + i * rows.stride,
            .masks = rows.masks == nullptr ? nullptr : rows.masks + first * rows.stride,
            .mask_stride = rows.stride};
  }

  std::vector<std::size_t> options_;
};

class Bits : public Head {
 public:
  explicit Bits(std::size_t n) : Head(n, n, 0) {}

  void forward(const HeadRows& rows, const float* output, const float*,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, rows.n, n_outputs(), &memory->outputs);
    memory->grads.reshape(n_outputs(), lanes);
    fill(&memory->log_prob, lanes, 0.0f);
    fill(&memory->entropy, lanes, 0.0f);
    for (std::size_t bit = 0; bit < n_outputs(); ++bit) {
      float* logits = memory->outputs.row(bit);
      if (rows.masks != nullptr) {
        const float* mask = rows.masks + bit * rows.stride;
        for (std::size_t i = 0; i < rows.n; ++i) {
          if (mask[i] == 0.0f) logits[i] = kForbiddenLogit;
        }
      }
      kernels().policy.bit_forward(logits, rows.actions + bit * rows.stride, memory->grads.row(bit),
                                   memory->entropy.data(), memory->log_prob.data(), lanes);
    }
  }

  void backward(const HeadRows& rows, const Slopes& slopes, const float*, float* output_grad,
                float*, HeadMemory* memory) const override {
    for (std::size_t bit = 0; bit < n_outputs(); ++bit) {
      kernels().policy.bit_backward(memory->outputs.row(bit), rows.actions + bit * rows.stride,
                                    memory->grads.row(bit), slopes, whole_lanes(rows.n));
    }
    to_rows(memory->grads, rows.n, output_grad);
  }
};

class Normals : public Head {
 public:
  explicit Normals(std::size_t n) : Head(n, n, n) {}

  void forward(const HeadRows& rows, const float* output, const float* log_stds,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, rows.n, n_outputs(), &memory->grads);
    const double sum = std::accumulate(log_stds, log_stds + n_outputs(), 0.0);
    const double constant = sum + static_cast<double>(n_outputs()) * kLogSqrt2Pi;
    fill(&memory->log_prob, lanes, static_cast<float>(-constant));
    fill(&memory->entropy, lanes,
         static_cast<float>(constant + 0.5 * static_cast<double>(n_outputs())));
    for (std::size_t j = 0; j < n_outputs(); ++j) {
      kernels().policy.normal_forward(memory->grads.row(j), rows.actions + j * rows.stride,
                                      std::exp(-log_stds[j]), memory->log_prob.data(), lanes);
    }
  }

  void backward(const HeadRows& rows, const Slopes& slopes, const float* log_stds,
                float* output_grad, float* log_stds_grad, HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    const double entropies = std::accumulate(slopes.c, slopes.c + lanes, 0.0);  // dH / dlog std = 1
    for (std::size_t j = 0; j < n_outputs(); ++j) {
      const double grad = kernels().policy.normal_backward(memory->grads.row(j),
                                                           std::exp(-log_stds[j]), slopes.w, lanes);
      log_stds_grad[j] += static_cast<float>(grad - entropies);
    }
    to_rows(memory->grads, rows.n, output_grad);
  }
};

}  // namespace

std::unique_ptr<Head> make_choices(std::vector<std::size_t> options) {
  return std::make_unique<Choices>(std::move(options));
}
std::unique_ptr<Head> make_bits(std::size_t n) { return std::make_unique<Bits>(n); }
std::unique_ptr<Head> make_normals(std::size_t n) { return std::make_unique<Normals>(n); }

}  // namespace sharpwave
