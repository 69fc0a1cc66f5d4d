// Kernels of world models on every instruction set, beside the same in double precision.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"

namespace {

using sharpwave::Kernels;
using sharpwave::TwoHotTargets;
using sharpwave::WorldKernels;
using Floats = std::vector<float>;

Floats normal(std::size_t n, unsigned seed, double scale = 2.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution(0.0, scale);
  Floats drawn(n);
  for (float& x : drawn) x = static_cast<float>(distribution(random));
  return drawn;
}

bool is_near(double found, double expected, double scale = 1.0) {
  return std::fabs(found - expected) <= 2e-5 * std::max({1.0, std::fabs(expected), scale});
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Gradients are compared with differences of this.
double silu_of_row(const float* x, const float* scale, std::size_t n, std::size_t at) {
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double y = x[at] / std::sqrt(squares / static_cast<double>(n) + 1e-4) * scale[at];
  return y * sigmoid(y);
}

void check_norm_silu(const WorldKernels& world) {
  constexpr std::size_t kRows = 3;
  for (const std::size_t n : {1, 3, 7, 8, 16, 17, 64, 100}) {
    const Floats x = normal(kRows * n, 1), scale = normal(n, 2), grad = normal(kRows * n, 3);
    Floats out(kRows * n), of_x(kRows * n), of_scale(n, 0.0f);
    world.norm_silu(x.data(), scale.data(), kRows, n, out.data());
    world.norm_silu_backward(x.data(), scale.data(), grad.data(), kRows, n, of_x.data(),
                             of_scale.data());
    std::vector<double> scale_sums(n, 0.0);
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* r = x.data() + row * n;
      double squares = 0, dot = 0;
      for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(r[i]) * r[i];
      const double root = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-4);
      std::vector<double> of_y(n);
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(is_near(out[row * n + i], silu_of_row(r, scale.data(), n, i)));
        const double y = r[i] * root, z = y * scale[i], gate = sigmoid(z);
        const double g = grad[row * n + i] * (gate + z * gate * (1 - gate));
        scale_sums[i] += g * y;
        of_y[i] = g * scale[i];
        dot += of_y[i] * y;
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = root * (of_y[i] - r[i] * root * dot / static_cast<double>(n));
        CHECK(is_near(of_x[row * n + i], expected, 10.0));
      }
    }
    for (std::size_t i = 0; i < n; ++i) CHECK(is_near(of_scale[i], scale_sums[i], 10.0));
  }
}

void check_remember(const WorldKernels& world) {
  constexpr std::size_t kBlocks = 3, kRows = 4;
  for (const std::size_t n : {1, 5, 16, 33}) {
    const std::size_t size = kBlocks * kRows * n;
    const Floats gates = normal(3 * size, 1), before = normal(size, 2), grad = normal(size, 3);
    Floats out(size), of_gates(3 * size), of_before(size);
    world.remember(gates.data(), before.data(), kBlocks, kRows, n, out.data());
    world.remember_backward(gates.data(), before.data(), grad.data(), kBlocks, kRows, n,
                            of_gates.data(), of_before.data());
    for (std::size_t block = 0; block < kBlocks; ++block) {
      for (std::size_t row = 0; row < kRows; ++row) {
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t gate = (block * kRows + row) * 3 * n + i;
          const std::size_t at = (row * kBlocks + block) * n + i;
          const double r = sigmoid(gates[gate]), c = gates[gate + n];
          const double u = sigmoid(gates[gate + 2 * n] - 1.0), t = std::tanh(r * c);
          CHECK(is_near(out[at], u * t + (1 - u) * before[at]));
          const double of_new = grad[at] * u * (1 - t * t);
          CHECK(is_near(of_gates[gate], of_new * c * r * (1 - r), 10.0));
          CHECK(is_near(of_gates[gate + n], of_new * r, 10.0));
          const double of_update = grad[at] * (t - before[at]) * u * (1 - u);
          CHECK(is_near(of_gates[gate + 2 * n], of_update, 10.0));
          CHECK(is_near(of_before[at], grad[at] * (1 - u)));
        }
      }
    }
  }
}

void check_draws(const WorldKernels& world) {
  constexpr std::size_t kRows = 5;
  for (const std::size_t n : {1, 4, 8, 24, 33}) {
    for (const float share : {0.0f, 0.01f, 1.0f}) {
      const Floats logits = normal(kRows * n, 1), noise = normal(kRows * n, 2);
      const Floats grad = normal(kRows * n, 3);
      Floats work(kRows * n), out(kRows * n), of_logits(kRows * n);
      world.draw_classes(logits.data(), noise.data(), kRows, n, share, work.data(), out.data());
      world.draw_classes_backward(logits.data(), grad.data(), kRows, n, share, of_logits.data());
      for (std::size_t row = 0; row < kRows; ++row) {
        const float* x = logits.data() + row * n;
        double sum = 0, mean = 0;
        for (std::size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]));
        std::size_t best = 0;
        std::vector<double> score(n), probs(n);
        for (std::size_t i = 0; i < n; ++i) {
          probs[i] = std::exp(static_cast<double>(x[i])) / sum;
          const double mixed = (1.0 - share) * probs[i] + share / static_cast<double>(n);
          score[i] = std::log(mixed) + noise[row * n + i];
          if (score[i] > score[best]) best = i;
          mean += probs[i] * grad[row * n + i];
        }
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(out[row * n + i] == (i == best ? 1.0f : 0.0f));
          const double expected = (1.0 - share) * probs[i] * (grad[row * n + i] - mean);
          CHECK(is_near(of_logits[row * n + i], expected));
        }
      }
    }
  }
}

void check_bins(const WorldKernels& world) {
  constexpr std::size_t kRows = 6, kTargets = 2;
  for (const std::size_t n : {3, 5, 17, 255}) {
    Floats bins(n);
    for (std::size_t i = 0; i < n; ++i) {
      bins[i] = static_cast<float>(i) - static_cast<float>(n / 2);
      bins[i] *= std::fabs(bins[i]);
    }
    const Floats logits = normal(kRows * n, 1), grad = normal(kRows, 2);
    Floats targets = normal(kTargets * kRows, 3, 8.0);
    targets[0] = bins[0];
    targets[1] = bins[n - 1];
    targets[2] = bins[n / 2];
    targets[3] = 1e30f;
    const Floats weights = {1.0f, 0.7f};
    const TwoHotTargets of{targets.data(), weights.data(), kTargets, bins.data()};
    Floats mean(kRows), loss(kRows), of_logits(kRows * n);
    world.two_hot_mean(logits.data(), bins.data(), kRows, n, mean.data());
    world.two_hot_loss(logits.data(), of, kRows, n, loss.data());
    world.two_hot_loss_backward(logits.data(), of, grad.data(), kRows, n, of_logits.data());
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* x = logits.data() + row * n;
      double sum = 0, expected_mean = 0, expected_loss = 0;
      for (std::size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]));
      std::vector<double> expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        const double p = std::exp(static_cast<double>(x[i])) / sum;
        expected_mean += p * bins[i];
        expected[i] = p * 1.7;
      }
      for (std::size_t k = 0; k < kTargets; ++k) {
        const float target = std::clamp(targets[k * kRows + row], bins[0], bins[n - 1]);
        std::size_t above = 1;
        while (above + 1 < n && bins[above] <= target) ++above;
        const double share = (static_cast<double>(target) - bins[above - 1]) /
                             (static_cast<double>(bins[above]) - bins[above - 1]);
        const double weight = weights[k];
        expected[above - 1] -= weight * (1 - share);
        expected[above] -= weight * share;
        expected_loss += weight * (std::log(sum) - (1 - share) * x[above - 1] - share * x[above]);
      }
      CHECK(is_near(mean[row], expected_mean, bins[n - 1]));
      CHECK(is_near(loss[row], expected_loss));
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(is_near(of_logits[row * n + i], grad[row] * expected[i], 10.0));
      }
    }
    // Equal probabilities have the mean 0, whatever the size of the largest bins.
    const Floats equal(n, 0.25f);
    world.two_hot_mean(equal.data(), bins.data(), 1, n, mean.data());
    CHECK(mean[0] == 0.0f);
  }
}

}  // namespace

int main() {
  const Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (int i = 0; i < count; ++i) {
    check_norm_silu(tables[i]->world);
    check_remember(tables[i]->world);
    check_draws(tables[i]->world);
    check_bins(tables[i]->world);
  }
  return 0;
}
