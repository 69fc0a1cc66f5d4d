// What a prioritized buffer keeps about its rows: how likely each is, and how much its draw weighs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/sum_tree.hpp"

namespace sharpwave {

enum class PriorityKind { proportional, rank };

// Prioritized experience replay (Schaul et al., 2016). A row is drawn with probability leaf /
// total:
//
//   proportional  leaf = priority ** alpha
//   rank          leaf = (1 / rank) ** alpha, rank 1 the highest priority, ties by slot
//
// A row of priority 0 is never drawn, whatever alpha. Other leaves lie in [kMinLeaf, kMaxLeaf]: a
// positive priority never vanishes, and the float32 sum of 2**32 leaves stays finite.
//
// Ranks need an order of all rows, which is sorted anew once an eighth of the rows have changed,
// and at every change in buffers of less than 16 rows. In between, a changed row gets the rank that
// its priority would have had in the last order.
//
// Priorities are finite and not negative, and slots are below the capacity: the caller checked. Not
// thread-safe.
class Priorities {
 public:
  static constexpr float kMinLeaf = 0x1p-126f;
  static constexpr float kMaxLeaf = 0x1p95f;

  // The priorities of the last sort from high to low, and how many rows changed since then.
  struct Order {
    std::vector<float> sorted;
    std::size_t changes = 0;
  };

  // Throws std::invalid_argument for a capacity SumTree refuses or an alpha that is negative or not
  // finite.
  Priorities(std::size_t capacity, PriorityKind kind, double alpha,
             const TreeKernels& table = kernels().tree);

  std::size_t capacity() const { return tree_.capacity(); }
  PriorityKind kind() const { return kind_; }
  double alpha() const { return alpha_; }
  std::size_t bytes() const;

  // Rows written to the slots first_slot .. first_slot + n - 1. Without priorities they get the
  // highest one seen so far, so that every new row is soon drawn.
  void push(std::size_t first_slot, std::size_t n, const float* priorities_or_null);
  // Of equal slots the last wins.
  void update(const std::uint64_t* slots, const float* priorities, std::size_t n);
  // The rows can no longer be drawn.
  void remove(std::size_t first_slot, std::size_t n = 1);
  // Removes all rows; the highest priority is 1 again.
  void clear();

  // The highest priority seen so far, 1 at the start.
  double max_priority() const { return max_priority_; }
  void set_max_priority(double priority);
  // The priority that was given: exact for ranks, leaf ** (1 / alpha) otherwise (1 when alpha is
  // 0).
  float priority(std::size_t slot) const;

  // Sorts the rows of ranks when enough of them changed. To be called before draws.
  void prepare();
  double total() const { return tree_.total(); }
  float min_positive() const { return tree_.min_positive(); }
  // See SumTree::find.
  void find(const double* targets, std::size_t n, std::uint64_t* slots) const {
    tree_.find(targets, n, slots);
  }
  // out[i] = (smallest / leaf_i) ** beta, with the smallest positive leaf of the buffer or of the
  // batch. This is (N * P(i)) ** -beta divided by its maximum: N and the total cancel out. At most
  // 1; 0 for a row that cannot be drawn.
  void weights(const std::uint64_t* slots, std::size_t n, double beta, bool batch_norm,
               float* out) const;

  // To save: the leaves, and for ranks the priorities and the order. To restore: push the saved
  // priorities (ranks only), then set_leaves, set_order (ranks only) and set_max_priority. Draws
  // then go on as if nothing had happened.
  float leaf(std::size_t slot) const { return tree_.get(slot); }
  void set_leaves(std::size_t first_slot, std::size_t n, const float* leaves);
  // Has whatever is set copied to mirror[slot] from now on: leaves, or the priorities of ranks.
  // Removals are not copied.
  void mirror_to(float* mirror) { mirror_ = mirror; }
  const Order& order() const { return order_; }
  void set_order(Order order) { order_ = std::move(order); }

 private:
  // leaves[i] = the leaf of priorities[i]; n at most kChunk.
  void to_leaves(const float* priorities, std::size_t n, float* leaves) const;
  float rank_in_order(float priority) const;
  void remember(std::size_t slot, float priority);
  void sort_rows();

  SumTree tree_;
  const TreeKernels* kernels_;
  PriorityKind kind_;
  double alpha_;
  double max_priority_ = 1.0;
  float max_leaf_ = 1.0f;  // of max_priority_, proportional
  // Ranks only: the priority of each slot, how many are positive, and their last order.
  std::vector<float> priorities_;
  std::size_t live_ = 0;
  Order order_;
  float* mirror_ = nullptr;
};

}  // namespace sharpwave
