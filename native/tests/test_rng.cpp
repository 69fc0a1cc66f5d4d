#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.hpp"
#include "tests/check.hpp"

namespace {

using sharpwave::Permutation;
using sharpwave::Philox;

// The published known answers of Philox4x32-10.
void encrypts_like_the_reference() {
  CHECK((Philox::encrypt({0, 0, 0, 0}, 0) ==
         Philox::Block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  constexpr std::uint32_t kOnes = 0xffffffffU;
  CHECK((Philox::encrypt({kOnes, kOnes, kOnes, kOnes}, ~std::uint64_t{0}) ==
         Philox::Block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  CHECK((Philox::encrypt({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U},
                         0x299f31d0a4093822ULL) ==
         Philox::Block{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
}

void fill_equals_single_draws() {
  const Philox generator(3, 4);
  for (const std::size_t n : {0, 1, 2, 3, 64, 101}) {
    std::vector<std::uint64_t> filled(n + 1, 7);
    generator.fill(filled.data(), n, 9);
    for (std::size_t i = 0; i < n; ++i) CHECK(filled[i] == generator.bits(i, 0, 9));
    CHECK(filled[n] == 7);
  }
}

void seeds_calls_rows_attempts_and_purposes_give_different_bits() {
  std::vector<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (std::uint64_t call = 0; call < 4; ++call) {
      const Philox generator(seed, call);
      for (std::uint64_t row = 0; row < 8; ++row) {
        for (std::uint32_t attempt = 0; attempt < 4; ++attempt) {
          for (std::uint32_t purpose = 0; purpose < 4; ++purpose) {
            seen.push_back(generator.bits(row, attempt, purpose));
          }
        }
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

void numbers_below_n_are_uniform() {
  for (const std::uint64_t n : {1ULL, 2ULL, 7ULL, 100ULL}) {
    std::vector<double> counts(n);
    const Philox generator(n, 1);
    const std::uint64_t draws = 20000;
    for (std::uint64_t row = 0; row < draws; ++row) {
      const std::uint64_t drawn = generator.below(n, row);
      CHECK(drawn < n);
      counts[drawn] += 1.0;
    }
    double statistic = 0.0;
    const double expected = static_cast<double>(draws) / static_cast<double>(n);
    for (const double count : counts) {
      statistic += (count - expected) * (count - expected) / expected;
    }
    // Mean n - 1 and variance 2 (n - 1): five deviations.
    const auto freedom = static_cast<double>(n - 1);
    CHECK(statistic <= freedom + 5.0 * std::sqrt(2.0 * freedom) + 1e-9);
  }
  CHECK(Philox::scale(~std::uint64_t{0}, ~std::uint64_t{0}) == ~std::uint64_t{0} - 1);
  for (std::uint64_t row = 0; row < 1000; ++row) {
    const double unit = Philox(1, 2).unit(row);
    CHECK(unit >= 0.0 && unit < 1.0);
  }
}

void permutations_are_bijections() {
  std::vector<std::uint64_t> sizes = {1000, 1023, 1024, 1025, 4095, 4096, 4097, 65537};
  for (std::uint64_t n = 1; n <= 200; ++n) sizes.push_back(n);
  for (const std::uint64_t n : sizes) {
    const Permutation permutation(n, Philox(n, 0));
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permutation(i);
      CHECK(to < n && !seen[to]);
      seen[to] = true;
    }
  }
}

void permutations_differ_by_seed_and_move_most_numbers() {
  const Permutation one(1000, Philox(1, 0));
  const Permutation two(1000, Philox(2, 0));
  int fixed = 0;
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    fixed += one(i) == i;
    same += one(i) == two(i);
  }
  CHECK(fixed < 10 && same < 10);
}

}  // namespace

int main() {
  encrypts_like_the_reference();
  fill_equals_single_draws();
  seeds_calls_rows_attempts_and_purposes_give_different_bits();
  numbers_below_n_are_uniform();
  permutations_are_bijections();
  permutations_differ_by_seed_and_move_most_numbers();
}
