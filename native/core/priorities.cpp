#include "core/priorities.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 1024;

// A row to be ordered: slots below 2**32 (SumTree's limit) in the low half, the bits of the
// priority in the high half. Positive floats order as their bits do; inverted, the highest comes
// first.
std::uint64_t row_key(float priority, std::size_t slot) {
  return (std::uint64_t{~std::bit_cast<std::uint32_t>(priority)} << 32) | slot;
}

float priority_of(std::uint64_t key) {
  return std::bit_cast<float>(~static_cast<std::uint32_t>(key >> 32));
}

std::size_t slot_of(std::uint64_t key) { return key & 0xFFFFFFFFu; }

// Sorts by the high half, one byte at a time. It is stable, so that equal priorities keep their
// order.
void sort_keys(std::vector<std::uint64_t>& keys) {
  std::vector<std::uint64_t> other(keys.size());
  for (unsigned shift = 32; shift < 64; shift += 8) {
    std::array<std::size_t, 256> starts{};
    for (const std::uint64_t key : keys) {
      ++starts[(key >> shift) & 0xFF];
    }
    std::size_t sum = 0;
    for (std::size_t& start : starts) {
      start = std::exchange(sum, sum + start);
    }
    for (const std::uint64_t key : keys) {
      other[starts[(key >> shift) & 0xFF]++] = key;
    }
    keys.swap(other);
  }
}

}  // namespace

Priorities::Priorities(std::size_t capacity, PriorityKind kind, double alpha,
                       const TreeKernels& table)
    : tree_(capacity, table), kernels_(&table), kind_(kind), alpha_(alpha) {
  if (!(alpha >= 0.0 && std::isfinite(alpha))) {
    throw std::invalid_argument("alpha must be finite and at least 0, got " +
                                std::to_string(alpha));
  }
  if (kind == PriorityKind::rank) {
    priorities_.resize(capacity);
  }
}

std::size_t Priorities::bytes() const {
  return tree_.bytes() + (priorities_.capacity() + order_.sorted.capacity()) * sizeof(float);
}

void Priorities::push(std::size_t first_slot, std::size_t n, const float* priorities_or_null) {
  if (kind_ == PriorityKind::proportional && priorities_or_null == nullptr) {
    if (n == 1) {
      tree_.set(first_slot, max_leaf_);
    } else {
      tree_.set_range(first_slot, n, max_leaf_);
    }
    if (mirror_ != nullptr) std::fill_n(mirror_ + first_slot, n, max_leaf_);
    return;
  }
  std::array<float, kChunk> same;
  std::array<float, kChunk> leaves;
  if (priorities_or_null == nullptr) {
    std::fill_n(same.begin(), std::min(n, kChunk), static_cast<float>(max_priority_));
  }
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t count = std::min(n - begin, kChunk);
    const float* given = priorities_or_null ? priorities_or_null + begin : same.data();
    to_leaves(given, count, leaves.data());
    for (std::size_t i = 0; kind_ == PriorityKind::rank && i < count; ++i) {
      remember(first_slot + begin + i, given[i]);
    }
    tree_.set_range(first_slot + begin, count, leaves.data());
    if (mirror_ != nullptr) {
      const float* mirrored = kind_ == PriorityKind::rank ? given : leaves.data();
      std::copy_n(mirrored, count, mirror_ + first_slot + begin);
    }
  }
  if (priorities_or_null != nullptr && n > 0) {
    set_max_priority(std::max(max_priority_, static_cast<double>(*std::max_element(
                                                 priorities_or_null, priorities_or_null + n))));
  }
}

void Priorities::update(const std::uint64_t* slots, const float* priorities, std::size_t n) {
  std::array<float, kChunk> leaves;
  float highest = 0.0f;
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t count = std::min(n - begin, kChunk);
    to_leaves(priorities + begin, count, leaves.data());
    for (std::size_t i = begin; i < begin + count; ++i) {
      highest = std::max(highest, priorities[i]);
      if (kind_ == PriorityKind::rank) {
        remember(slots[i], priorities[i]);
      }
      if (mirror_ != nullptr) {
        mirror_[slots[i]] = kind_ == PriorityKind::rank ? priorities[i] : leaves[i - begin];
      }
    }
    tree_.set_many(slots + begin, leaves.data(), count);
  }
  if (static_cast<double>(highest) > max_priority_) {
    set_max_priority(static_cast<double>(highest));
  }
}

void Priorities::remove(std::size_t first_slot, std::size_t n) {
  for (std::size_t i = 0; kind_ == PriorityKind::rank && i < n; ++i) {
    remember(first_slot + i, 0.0f);
  }
  if (n == 1) {
    tree_.set(first_slot, 0.0f);
  } else {
    tree_.set_range(first_slot, n, 0.0f);
  }
}

void Priorities::clear() {
  tree_.clear();
  std::fill(priorities_.begin(), priorities_.end(), 0.0f);
  live_ = 0;
  order_ = {};
  set_max_priority(1.0);
}

void Priorities::set_max_priority(double priority) {
  max_priority_ = priority;
  const float rounded = static_cast<float>(priority);
  if (kind_ == PriorityKind::proportional) {
    to_leaves(&rounded, 1, &max_leaf_);
  }
}

float Priorities::priority(std::size_t slot) const {
  if (kind_ == PriorityKind::rank) {
    return priorities_[slot];
  }
  const float leaf = tree_.get(slot);
  if (alpha_ == 0.0 || leaf == 0.0f) {
    return leaf;
  }
  const double inverted = std::pow(static_cast<double>(leaf), 1.0 / alpha_);
  return static_cast<float>(
      std::min(inverted, static_cast<double>(std::numeric_limits<float>::max())));
}

void Priorities::to_leaves(const float* priorities, std::size_t n, float* leaves) const {
  if (kind_ == PriorityKind::proportional) {
    kernels_->power(priorities, n, alpha_, kMinLeaf, kMaxLeaf, leaves);
    return;
  }
  std::array<float, kChunk> ranks;
  for (std::size_t i = 0; i < n; ++i) {
    ranks[i] = priorities[i] > 0.0f ? rank_in_order(priorities[i]) : 0.0f;
  }
  kernels_->power(ranks.data(), n, -alpha_, kMinLeaf, kMaxLeaf, leaves);
}

float Priorities::rank_in_order(float priority) const {
  const auto better =
      std::lower_bound(order_.sorted.begin(), order_.sorted.end(), priority, std::greater<float>());
  return static_cast<float>(better - order_.sorted.begin() + 1);
}

void Priorities::remember(std::size_t slot, float priority) {
  live_ -= priorities_[slot] > 0.0f;
  live_ += priority > 0.0f;
  priorities_[slot] = priority;
  ++order_.changes;
}

void Priorities::prepare() {
  if (order_.changes > 0 && order_.changes >= live_ / 8) {
    sort_rows();
  }
}

void Priorities::sort_rows() {
  std::vector<std::uint64_t> keys;
  keys.reserve(live_);
  for (std::size_t slot = 0; slot < priorities_.size(); ++slot) {
    if (priorities_[slot] > 0.0f) {
      keys.push_back(row_key(priorities_[slot], slot));
    }
  }
  sort_keys(keys);
  order_.sorted.resize(keys.size());
  std::vector<float> leaves(priorities_.size());
  std::array<float, kChunk> ranks;
  std::array<float, kChunk> ranked_leaves;
  for (std::size_t begin = 0; begin < keys.size(); begin += kChunk) {
    const std::size_t count = std::min(keys.size() - begin, kChunk);
    for (std::size_t i = 0; i < count; ++i) {
      ranks[i] = static_cast<float>(begin + i + 1);
    }
    kernels_->power(ranks.data(), count, -alpha_, kMinLeaf, kMaxLeaf, ranked_leaves.data());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t key = keys[begin + i];
      order_.sorted[begin + i] = priority_of(key);
      leaves[slot_of(key)] = ranked_leaves[i];
    }
  }
  tree_.set_range(0, leaves.size(), leaves.data());
  order_.changes = 0;
}

void Priorities::weights(const std::uint64_t* slots, std::size_t n, double beta, bool batch_norm,
                         float* out) const {
  float smallest = tree_.min_positive();
  if (batch_norm) {
    smallest = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
      const float leaf = tree_.get(slots[i]);
      smallest = leaf > 0.0f ? std::min(smallest, leaf) : smallest;
    }
  }
  std::array<float, kChunk> leaves;
  for (std::size_t begin = 0; begin < n; begin += kChunk) {
    const std::size_t count = std::min(n - begin, kChunk);
    for (std::size_t i = 0; i < count; ++i) {
      leaves[i] = tree_.get(slots[begin + i]);
    }
    kernels_->ratio_power(leaves.data(), count, smallest, beta, out + begin);
  }
}

void Priorities::set_leaves(std::size_t first_slot, std::size_t n, const float* leaves) {
  tree_.set_range(first_slot, n, leaves);
}

}  // namespace sharpwave
