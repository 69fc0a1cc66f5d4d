// Packing of sequences into rows of one length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace sharpwave {

// Where each sequence goes. Entry k describes the k-th sequence of the packed layout, which is
// ordered by bin and, inside a bin, by offset.
struct PackingPlan {
  std::size_t n_bins = 0;
  std::vector<std::int64_t> sequence;  // index of the sequence in the input
  std::vector<std::int64_t> bin;
  std::vector<std::int64_t> offset;  // of its first token inside the bin
};

// First-fit decreasing: sequences by falling length (equal ones in input order), each into the
// first bin with room. O(n log n). Throws std::invalid_argument for a length that is negative or
// above max_len.
PackingPlan plan_packing(std::span<const std::int64_t> lengths, std::size_t max_len);

}  // namespace sharpwave
