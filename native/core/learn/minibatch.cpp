#include "core/learn/minibatch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/learn/columns.hpp"
#include "core/learn/statistics.hpp"

namespace sharpwave {
void Minibatch::gather(const Policy& policy, const PolicyRollout& rollout, const std::int64_t* rows,
                       std::size_t n) {
  const Head& head = policy.head();
  const std::size_t n_inputs = policy.n_inputs();
  n_ = n;
  obs_.reshape(n, n_inputs);
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(obs_.row(i), rollout.obs + static_cast<std::size_t>(rows[i]) * n_inputs,
                n_inputs * sizeof(float));
  }
  has_joint_ = rollout.joint != nullptr;
  if (has_joint_) gather_joint(rollout, rows, policy.n_critic_inputs());
  const auto row_of = [&](std::size_t i) { return static_cast<std::size_t>(rows[i]); };
  if (rollout.choices != nullptr) {
    to_columns(rollout.choices, head.n_actions(), n, row_of, &actions_);
  } else {
    to_columns(rollout.moves, head.n_actions(), n, row_of, &actions_);
  }
  is_masked_ = rollout.masks != nullptr;
  if (is_masked_) to_columns(rollout.masks, head.n_outputs(), n, row_of, &masks_);
  is_weighted_ = rollout.weights != nullptr;

  scalars_.reshape(kCount, whole_lanes(n));
  gather_scalar(kLogProbs, rollout.log_probs, rows, 0.0f);
  gather_scalar(kAdvantages, rollout.advantages, rows, 0.0f);
  gather_scalar(kReturns, rollout.returns, rows, 0.0f);
  gather_scalar(kValues, rollout.values, rows, 0.0f);
  gather_scalar(kWeights, rollout.weights, rows, 1.0f);

  const float* weights = scalars_.row(kWeights);
  float* shares = scalars_.row(kShares);
  total_weight_ = 0.0;
  for (std::size_t i = 0; i < n; ++i) total_weight_ += double{weights[i]};
  // Without any weight every mean is 0.
  const double share = total_weight_ > 0.0 ? 1.0 / total_weight_ : 0.0;
  for (std::size_t i = 0; i < scalars_.n_columns(); ++i) {
    shares[i] = static_cast<float>(double{weights[i]} * share);
  }
}

void Minibatch::gather_again(const PolicyRollout& rollout, const std::int64_t* rows) {
  gather_scalar(kAdvantages, rollout.advantages, rows, 0.0f);
  gather_scalar(kReturns, rollout.returns, rows, 0.0f);
  gather_scalar(kValues, rollout.values, rows, 0.0f);
}

// Finds the inputs that some rows have, in the order in which they come, and sorts the rows by
// them.
void Minibatch::gather_joint(const PolicyRollout& rollout, const std::int64_t* rows,
                             std::size_t n_inputs) {
  constexpr auto kNowhere = static_cast<std::size_t>(-1);
  std::vector<std::size_t>& found = sharing_;  // the input of each row, until rows are sorted
  found.resize(n_);
  places_.assign(rollout.n_joint, kNowhere);
  inputs_.clear();
  starts_.assign(1, 0);
  for (std::size_t i = 0; i < n_; ++i) {
    const std::int64_t input =
        rollout.joint_rows == nullptr ? rows[i] : rollout.joint_rows[rows[i]];
    std::size_t& place = places_[static_cast<std::size_t>(input)];
    if (place == kNowhere) {
      place = inputs_.size();
      inputs_.push_back(static_cast<std::size_t>(input));
      starts_.push_back(0);
    }
    ++starts_[place + 1];
    found[i] = place;
  }
  for (std::size_t i = 1; i < starts_.size(); ++i) starts_[i] += starts_[i - 1];
  joint_.reshape(inputs_.size(), n_inputs);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    std::memcpy(joint_.row(i), rollout.joint + inputs_[i] * n_inputs, n_inputs * sizeof(float));
  }
  std::copy(starts_.begin(), starts_.end() - 1, inputs_.begin());  // from here on where to put rows
  std::vector<std::size_t> sorted(n_);
  for (std::size_t i = 0; i < n_; ++i) sorted[inputs_[found[i]]++] = i;
  sharing_.swap(sorted);
}

void Minibatch::gather_scalar(Scalar scalar, const float* source, const std::int64_t* rows,
                              float otherwise) {
  float* column = scalars_.row(scalar);
  if (source == nullptr) {
    std::fill(column, column + n_, otherwise);
  } else {
    for (std::size_t i = 0; i < n_; ++i) column[i] = source[rows[i]];
  }
  std::fill(column + n_, column + scalars_.n_columns(), 0.0f);
}

void Minibatch::normalize_advantages() {
  // One row alone has no deviation and stays as it is.
  if (n_ == 1 || (is_weighted_ && total_weight_ <= 1.0)) return;
  constexpr double kEps = 1e-8;
  const float* weights = scalars_.row(kWeights);
  float* advantages = scalars_.row(kAdvantages);
  const Moments moments = moments_of(
      n_, [&](std::size_t i) { return double{advantages[i]}; },
      [&](std::size_t i) { return double{weights[i]}; });
  const double scale = 1.0 / (std::sqrt(moments.variance) + kEps);
  for (std::size_t i = 0; i < n_; ++i) {
    advantages[i] = static_cast<float>((double{advantages[i]} - moments.mean) * scale);
  }
}

void Minibatch::normalize_values(ValueNorm* norm) {
  norm->update(scalars_.row(kReturns), scalars_.row(kWeights), n_);
  const ValueScale scale = norm->scale();
  for (const Scalar scalar : {kReturns, kValues}) {
    float* column = scalars_.row(scalar);
    for (std::size_t i = 0; i < n_; ++i) column[i] = scale.normalized(column[i]);
  }
}

HeadRows Minibatch::head_rows(std::size_t first, std::size_t n) const {
  return {.n = n,
          .stride = actions_.n_columns(),
          .actions = actions_.data() + first,
          .masks = is_masked_ ? masks_.data() + first : nullptr};
}

}  // namespace sharpwave
