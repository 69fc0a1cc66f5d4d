// Rows of a rollout, gathered for one gradient step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/learn/heads.hpp"
#include "core/learn/matrix.hpp"
#include "core/learn/policy.hpp"
#include "core/learn/value_norm.hpp"

namespace sharpwave {

// What a policy lived through. Arrays are rows; those that may be null are not needed by every
// loss.
struct PolicyRollout {
  std::size_t n_rows = 0;
  const float* obs = nullptr;  // [n_rows, n_inputs]
  // What the critic looks at, where that is not `obs`: [n_joint, n_critic_inputs], and which of
  // them belongs to each row [n_rows], null where they lie alike.
  const float* joint = nullptr;
  const std::int64_t* joint_rows = nullptr;
  std::size_t n_joint = 0;
  const std::int64_t* choices = nullptr;  // [n_rows, n_actions], of discrete actions
  const float* moves = nullptr;           // the same of continuous ones
  const float* advantages = nullptr;
  const float* returns = nullptr;
  const float* log_probs = nullptr;     // when the actions were taken; may be null
  const float* values = nullptr;        // then; may be null
  const std::uint8_t* masks = nullptr;  // [n_rows, n_outputs], 0 where forbidden; may be null
  const float* weights = nullptr;       // 0 where a row is no step; may be null
};

class Minibatch {
 public:
  // Copies rows of a rollout together.
  void gather(const Policy& policy, const PolicyRollout& rollout, const std::int64_t* rows,
              std::size_t n);
  // Takes back what normalizing changed, of the rows that were gathered last.
  void gather_again(const PolicyRollout& rollout, const std::int64_t* rows);
  // Gives the advantages mean 0 and deviation 1.
  void normalize_advantages();
  // Has returns and old values normalized as the critic learns them, by what it learns from them.
  void normalize_values(ValueNorm* norm);

  std::size_t n_rows() const { return n_; }
  const float* obs(std::size_t row) const { return obs_.row(row); }

  // Several rows may have the same input of the critic, which it values once.
  bool has_joint() const { return has_joint_; }
  std::size_t n_critic_rows() const { return has_joint_ ? joint_.n_rows() : n_; }
  const float* critic_input(std::size_t row) const {
    return has_joint_ ? joint_.row(row) : obs_.row(row);
  }
  // Where the rows of an input begin in `sharing()`; those of the last end at n_rows().
  const std::size_t* sharing_starts() const { return starts_.data(); }
  const std::size_t* sharing() const { return sharing_.data(); }

  const float* log_probs() const { return scalars_.row(kLogProbs); }
  const float* advantages() const { return scalars_.row(kAdvantages); }
  const float* returns() const { return scalars_.row(kReturns); }
  const float* values() const { return scalars_.row(kValues); }
  // What a row counts in a mean; their sum is 1.
  const float* shares() const { return scalars_.row(kShares); }
  // Rows from `first` on, which is a multiple of kLanes.
  HeadRows head_rows(std::size_t first, std::size_t n) const;

 private:
  enum Scalar : std::size_t {
    kLogProbs,
    kAdvantages,
    kReturns,
    kValues,
    kWeights,
    kShares,
    kCount
  };

  void gather_joint(const PolicyRollout& rollout, const std::int64_t* rows, std::size_t n_inputs);
  void gather_scalar(Scalar scalar, const float* source, const std::int64_t* rows, float otherwise);

  std::size_t n_ = 0;
  bool is_masked_ = false, is_weighted_ = false, has_joint_ = false;
  double total_weight_ = 0.0;
  Matrix obs_;      // [n, n_inputs]
  Matrix actions_;  // [n_actions, lanes]
  Matrix masks_;    // [n_outputs, lanes]
  Matrix scalars_;  // [kCount, lanes]
  Matrix joint_;    // [n_critic_rows, n_critic_inputs]
  std::vector<std::size_t> places_, inputs_, starts_, sharing_;
};

}  // namespace sharpwave
