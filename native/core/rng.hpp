// Counter-based random numbers: Philox4x32-10 (Salmon et al., 2011) keyed by (seed, call) and
// counted by (row, attempt). A draw is a function of its coordinates, so it does not depend on
// threads or order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sharpwave {

class Philox {
 public:
  // `call` numbers the draws of one generator; an explicit seed uses call 0 of a separate domain.
  Philox(std::uint64_t seed, std::uint64_t call) : key_(mix(mix(seed) ^ call)) {}

  // 64 random bits for this row and attempt; `purpose` separates draws for different ends.
  // Two neighboring rows share a block of 128 bits.
  std::uint64_t bits(std::uint64_t row, std::uint32_t attempt = 0,
                     std::uint32_t purpose = 0) const {
    const auto block = generate(row >> 1, attempt, purpose);
    return word(block, row & 1);
  }

  // out[i] = bits(first + i) for n rows, at half the cost. `first` is even.
  void fill(std::uint64_t* out, std::size_t n, std::uint32_t purpose = 0,
            std::uint64_t first = 0) const {
    for (std::size_t row = 0; row < n; row += 2) {
      const auto block = generate((first + row) >> 1, 0, purpose);
      out[row] = word(block, 0);
      if (row + 1 < n) out[row + 1] = word(block, 1);
    }
  }

  // Uniform in [0, n): the high word of a 128-bit product (bias below n / 2**64).
  std::uint64_t below(std::uint64_t n, std::uint64_t row, std::uint32_t attempt = 0,
                      std::uint32_t purpose = 0) const {
    return scale(bits(row, attempt, purpose), n);
  }

  // Uniform in [0, 1) with 53 bits.
  double unit(std::uint64_t row, std::uint32_t attempt = 0, std::uint32_t purpose = 0) const {
    return static_cast<double>(bits(row, attempt, purpose) >> 11) * 0x1p-53;
  }

  static std::uint64_t scale(std::uint64_t bits, std::uint64_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits) * n) >> 64);
  }

  using Block = std::array<std::uint32_t, 4>;

  Block generate(std::uint64_t index, std::uint32_t attempt, std::uint32_t purpose) const {
    return encrypt({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                    attempt, purpose},
                   key_);
  }

  // The ten rounds of the cipher.
  static Block encrypt(const Block& counter, std::uint64_t key) {
    auto [c0, c1, c2, c3] = counter;
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0;
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
  }

 private:
  static std::uint64_t word(const Block& block, std::uint64_t half) {
    return (std::uint64_t{block[2 * half + 1]} << 32) | block[2 * half];
  }
  static std::uint64_t mix(std::uint64_t x) {  // splitmix64's finalizer
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  }

  std::uint64_t key_;
};

// A keyed permutation of [0, n): a Feistel network over the next even power of two, walked until
// inside.
class Permutation {
 public:
  Permutation(std::uint64_t n, const Philox& generator) : n_(n) {
    while ((std::uint64_t{1} << (2 * half_bits_)) < n) ++half_bits_;
    for (std::uint32_t round = 0; round < keys_.size(); ++round) {
      keys_[round] = generator.bits(round, 0, kPurpose);
    }
  }

  std::uint64_t operator()(std::uint64_t i) const {
    do {
      i = scramble(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr std::uint32_t kPurpose = 0x7065726dU;

  std::uint64_t scramble(std::uint64_t i) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = i >> half_bits_;
    std::uint64_t right = i & mask;
    for (const std::uint64_t key : keys_) {
      std::uint64_t f = (right + key) * 0x9E3779B97F4A7C15ULL;
      f ^= f >> 32;
      f *= 0xD6E8FEB86659FD93ULL;
      const std::uint64_t next = left ^ ((f >> 29) & mask);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t n_;
  int half_bits_ = 1;
  std::array<std::uint64_t, 6> keys_{};
};

}  // namespace sharpwave
