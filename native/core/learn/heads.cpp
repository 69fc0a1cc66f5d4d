#include "core/learn/heads.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>

#include "core/isa/kernels.hpp"
#include "core/learn/columns.hpp"

namespace sharpwave {
namespace {

constexpr double kLogSqrt2Pi = 0.91893853320467274178;
constexpr float kForbiddenLogit = -1e8f;

void fill(Matrix* matrix, std::size_t n, float value) {
  matrix->reshape(1, n);
  std::fill(matrix->data(), matrix->data() + matrix->size(), value);
}

bool is_allowed(const HeadRows& rows, std::size_t output, std::size_t row) {
  return rows.masks == nullptr || rows.masks[output * rows.stride + row] != 0.0f;
}

double uniform(const Draws& draws, std::size_t row, std::size_t action) {
  return draws.random.unit(draws.first_row + row, static_cast<std::uint32_t>(action));
}

// A normal variable, by Box and Muller; u is not 0.
double normal(const Draws& draws, std::size_t row, std::size_t action) {
  constexpr double kTwoPi = 6.28318530717958647692;
  const std::uint64_t bits =
      draws.random.bits(draws.first_row + row, static_cast<std::uint32_t>(action));
  const double u = static_cast<double>((bits >> 32) + 1) * 0x1p-32;
  const double turn = static_cast<double>(bits & 0xffffffffU) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * turn);
}

class Choices : public Head {
 public:
  explicit Choices(std::vector<std::size_t> options)
      : Head(std::accumulate(options.begin(), options.end(), std::size_t{0}), options.size(), 0),
        options_(std::move(options)) {}

  void choose(const HeadRows& rows, const float* output, const float*, const Draws* draws,
              float* actions) const override {
    for (std::size_t row = 0; row < rows.n; ++row, output += n_outputs()) {
      for (std::size_t i = 0, first = 0; i < options_.size(); first += options_[i++]) {
        const std::size_t best = likeliest(rows, row, output, i, first);
        const std::size_t taken =
            draws == nullptr
                ? best
                : drawn(rows, row, output, i, first, output[first + best], uniform(*draws, row, i));
        actions[i * rows.stride + row] = static_cast<float>(taken);
      }
    }
  }

  void forward(const HeadRows& rows, const float* output, const float*,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, n_outputs(), rows.n, &memory->outputs);
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
  // The allowed option of choice i with the highest logit.
  std::size_t likeliest(const HeadRows& rows, std::size_t row, const float* logits, std::size_t i,
                        std::size_t first) const {
    std::size_t best = options_[i];
    for (std::size_t j = 0; j < options_[i]; ++j) {
      if (!is_allowed(rows, first + j, row)) continue;
      if (best == options_[i] || logits[first + j] > logits[first + best]) best = j;
    }
    return best == options_[i] ? 0 : best;
  }

  // The option where the sum of the probabilities first exceeds u.
  std::size_t drawn(const HeadRows& rows, std::size_t row, const float* logits, std::size_t i,
                    std::size_t first, float highest, double u) const {
    const auto rate = [&](std::size_t j) {
      return is_allowed(rows, first + j, row) ? std::exp(double{logits[first + j]} - highest) : 0.0;
    };
    double total = 0.0;
    for (std::size_t j = 0; j < options_[i]; ++j) total += rate(j);
    double left = u * total;
    std::size_t taken = 0;
    for (std::size_t j = 0; j < options_[i]; ++j) {
      const double share = rate(j);
      if (share > 0.0) taken = j;  // the last one that is possible, should rounding leave a rest
      if (left < share) break;
      left -= share;
    }
    return taken;
  }

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

  void choose(const HeadRows& rows, const float* output, const float*, const Draws* draws,
              float* actions) const override {
    for (std::size_t row = 0; row < rows.n; ++row, output += n_outputs()) {
      for (std::size_t bit = 0; bit < n_outputs(); ++bit) {
        const double logit = output[bit];
        const bool set = draws == nullptr
                             ? logit > 0.0
                             : uniform(*draws, row, bit) * (1.0 + std::exp(-logit)) < 1.0;
        actions[bit * rows.stride + row] = set && is_allowed(rows, bit, row) ? 1.0f : 0.0f;
      }
    }
  }

  void forward(const HeadRows& rows, const float* output, const float*,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, n_outputs(), rows.n, &memory->outputs);
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

  void choose(const HeadRows& rows, const float* output, const float* log_stds, const Draws* draws,
              float* actions) const override {
    for (std::size_t j = 0; j < n_outputs(); ++j) {
      const double deviation = std::exp(double{log_stds[j]});
      for (std::size_t row = 0; row < rows.n; ++row) {
        const double mean = output[row * n_outputs() + j];
        const double noise = draws == nullptr ? 0.0 : normal(*draws, row, j);
        actions[j * rows.stride + row] = static_cast<float>(mean + noise * deviation);
      }
    }
  }

  void forward(const HeadRows& rows, const float* output, const float* log_stds,
               HeadMemory* memory) const override {
    const std::size_t lanes = whole_lanes(rows.n);
    to_columns(output, n_outputs(), rows.n, &memory->grads);
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
