// Whether counts of draws agree with exact probabilities.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// The chi-square statistic as a number of standard deviations above its mean. Cells with less than
// five expected draws are pooled into one.
inline double chi_square_excess(const std::vector<std::uint64_t>& counts,
                                const std::vector<double>& probabilities) {
  double draws = 0.0;
  for (const std::uint64_t count : counts) {
    draws += static_cast<double>(count);
  }
  double statistic = 0.0;
  double cells = 0.0;
  double pooled_count = 0.0;
  double pooled_expected = 0.0;
  const auto add = [&](double count, double expected) {
    statistic += (count - expected) * (count - expected) / expected;
    cells += 1.0;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = draws * probabilities[i];
    if (expected >= 5.0) {
      add(static_cast<double>(counts[i]), expected);
    } else {
      pooled_count += static_cast<double>(counts[i]);
      pooled_expected += expected;
    }
  }
  if (pooled_expected >= 5.0) {
    add(pooled_count, pooled_expected);
  } else if (pooled_count > 5.0 + 5.0 * std::sqrt(pooled_expected)) {
    return INFINITY;
  }
  const double freedom = cells - 1.0;
  return freedom > 0.0 ? (statistic - freedom) / std::sqrt(2.0 * freedom) : 0.0;
}
