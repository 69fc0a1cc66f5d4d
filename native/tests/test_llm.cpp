#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"

namespace {

using sharpwave::Kernels;
using sharpwave::KlEstimator;

template <typename T>
const sharpwave::LlmKernelsOf<T>& llm(const Kernels& table) {
  if constexpr (sizeof(T) == 4)
    return table.llm.f32;
  else
    return table.llm.f64;
}

double term(KlEstimator estimator, double p, double q) {
  const double d = p == q ? 0.0 : p - q;
  switch (estimator) {
    case KlEstimator::k1:
      return d;
    case KlEstimator::k2:
      return d * d / 2;
    case KlEstimator::k3:
      return std::expm1(-d) + d;
    case KlEstimator::weighted:
      return std::exp(p) * d;
  }
  return 0;
}

constexpr KlEstimator kEstimators[] = {KlEstimator::k1, KlEstimator::k2, KlEstimator::k3,
                                       KlEstimator::weighted};

template <typename T>
void check_token_kl(const Kernels& table) {
  std::mt19937 random(7);
  std::exponential_distribution<double> exponential(0.5);
  std::normal_distribution<double> normal(0.1, 0.3);
  for (const std::size_t n : {0, 1, 3, 4, 7, 8, 16, 31, 32, 100, 511, 512, 513, 1500}) {
    std::vector<T> log_p, log_q;
    std::vector<std::uint8_t> mask;
    for (std::size_t i = 0; i < n; ++i) {
      log_p.push_back(static_cast<T>(-exponential(random)));
      log_q.push_back(static_cast<T>(log_p.back() - normal(random)));
      mask.push_back(random() % 3 != 0);
    }
    for (const KlEstimator estimator : kEstimators) {
      double all = 0, some = 0, size = 1e-30;
      for (std::size_t i = 0; i < n; ++i) {
        const double value = term(estimator, log_p[i], log_q[i]);
        all += value;
        some += mask[i] ? value : 0;
        size += std::fabs(value);
      }
      const double tolerance = (sizeof(T) == 4 ? 2e-6 : 1e-12) * size;
      const auto kl = llm<T>(table).token_kl;
      CHECK(std::fabs(kl(log_p.data(), log_q.data(), nullptr, n, estimator) - all) <= tolerance);
      CHECK(std::fabs(kl(log_p.data(), log_q.data(), mask.data(), n, estimator) - some) <=
            tolerance);
    }
  }
}

template <typename T>
void check_infinities(const Kernels& table) {
  const T never = -std::numeric_limits<T>::infinity(), half = T(-0.7);
  const auto kl = llm<T>(table).token_kl;
  for (const KlEstimator estimator : kEstimators) {
    CHECK(kl(&never, &never, nullptr, 1, estimator) == 0);
    CHECK(kl(&half, &never, nullptr, 1, estimator) == std::numeric_limits<double>::infinity());
  }
  CHECK(kl(&never, &half, nullptr, 1, KlEstimator::k3) == std::numeric_limits<double>::infinity());
  CHECK(kl(&never, &half, nullptr, 1, KlEstimator::weighted) == 0);
}

template <typename T>
void check_group_advantages(const Kernels& table) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const std::size_t group_size : {1, 2, 5, 8, 33}) {
    const std::size_t n_groups = 4;
    std::vector<T> rewards, advantages(n_groups * group_size);
    for (std::size_t i = 0; i < n_groups * group_size; ++i) {
      rewards.push_back(i < group_size ? T(0.1) : static_cast<T>(normal(random)));
    }
    llm<T>(table).group_advantages(rewards.data(), n_groups, group_size, advantages.data());
    for (std::size_t g = 0; g < n_groups; ++g) {
      double mean = 0, variance = 0;
      const T* group = rewards.data() + g * group_size;
      for (std::size_t i = 0; i < group_size; ++i) mean += group[i];
      mean /= static_cast<double>(group_size);
      for (std::size_t i = 0; i < group_size; ++i)
        variance += (group[i] - mean) * (group[i] - mean);
      const double deviation = std::sqrt(variance / static_cast<double>(group_size));
      for (std::size_t i = 0; i < group_size; ++i) {
        const double want = deviation < 1e-8 ? 0 : (group[i] - mean) / deviation;
        CHECK(std::fabs(static_cast<double>(advantages[g * group_size + i]) - want) <= 1e-5);
      }
    }
  }
}

}  // namespace

int main() {
  const Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (int i = 0; i < count; ++i) {
    check_token_kl<float>(*tables[i]);
    check_token_kl<double>(*tables[i]);
    check_infinities<float>(*tables[i]);
    check_infinities<double>(*tables[i]);
    check_group_advantages<float>(*tables[i]);
    check_group_advantages<double>(*tables[i]);
  }
  return 0;
}
