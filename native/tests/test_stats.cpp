#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"
#include "core/running_stats.hpp"

namespace {

using sharpwave::Kernels;

template <typename T>
const sharpwave::StatsKernelsOf<T>& stats(const Kernels& table) {
  if constexpr (sizeof(T) == 4)
    return table.stats.f32;
  else
    return table.stats.f64;
}

bool close(double a, double b) { return std::fabs(a - b) <= 1e-9 * (1 + std::fabs(b)); }

template <typename T>
void check_moments(const Kernels& table) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(1000.0, 2.0);
  for (const std::size_t dims : {1, 3, 17}) {
    std::vector<double> mean(dims, 0), m2(dims, 0), batch_mean(dims), batch_m2(dims);
    std::vector<T> all;
    double count = 0;
    for (const std::size_t n : {1, 2, 9, 40}) {
      std::vector<T> batch(n * dims);
      for (T& x : batch) x = static_cast<T>(normal(random));
      all.insert(all.end(), batch.begin(), batch.end());
      stats<T>(table).column_moments(batch.data(), n, dims, batch_mean.data(), batch_m2.data());
      sharpwave::merge_moments(mean.data(), m2.data(), count, batch_mean.data(), batch_m2.data(),
                               static_cast<double>(n), dims);
      count += static_cast<double>(n);
    }
    for (std::size_t j = 0; j < dims; ++j) {
      double sum = 0, squares = 0;
      for (std::size_t i = j; i < all.size(); i += dims) sum += all[i];
      for (std::size_t i = j; i < all.size(); i += dims) {
        squares += (all[i] - sum / count) * (all[i] - sum / count);
      }
      CHECK(close(mean[j], sum / count));
      CHECK(close(m2[j], squares));
    }
  }
}

template <typename T>
void check_elementwise(const Kernels& table) {
  const std::vector<T> x = {1, 2, 3, 40, 5, 6};
  const std::vector<double> mean = {1, 2, 3}, scale = {1, 0.5, 2};
  std::vector<T> out(6);
  stats<T>(table).normalize(x.data(), 2, 3, mean.data(), scale.data(), 5.0, out.data());
  CHECK((out == std::vector<T>{0, 0, 0, 5, 1.5, 5}));
  std::vector<T> target = {0, 4, 8};
  const std::vector<T> source = {4, 4, 0};
  stats<T>(table).polyak(target.data(), source.data(), 3, T(0.25));
  CHECK((target == std::vector<T>{1, 4, 6}));
}

}  // namespace

int main() {
  const Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (int i = 0; i < count; ++i) {
    check_moments<float>(*tables[i]);
    check_moments<double>(*tables[i]);
    check_elementwise<float>(*tables[i]);
    check_elementwise<double>(*tables[i]);
  }
  return 0;
}
