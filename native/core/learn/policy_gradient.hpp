// The losses of policy and values on a minibatch, and their gradient.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "core/learn/minibatch.hpp"
#include "core/learn/policy.hpp"
#include "core/learn/team.hpp"

namespace sharpwave {

struct PolicyLoss {
  bool is_clipped;                  // the surrogate of PPO, otherwise A log pi
  float clip;                       // range of ratios
  std::optional<float> value_clip;  // range of values; none where they are not clipped
  bool normalize;                   // the advantages of the minibatch
  float vf_coef, ent_coef;
  // Errors of values count linearly beyond it.
  float huber_delta = std::numeric_limits<float>::infinity();
  ValueNorm* value_norm = nullptr;  // of what the critic learns; may be null
};

// What a gradient step measured.
struct PolicyMetrics {
  double policy_loss = 0, value_loss = 0, entropy = 0, approx_kl = 0, clip_fraction = 0, loss = 0;
  double grad_norm = 0;

  void add(const PolicyMetrics& other, double share);
};

// L = policy loss + vf_coef value loss - ent_coef mean(entropy), over memory that is kept.
//
// Rows are split into lanes, a function of their number alone, and so is the order in which lanes
// are added: results do not depend on the number of threads.
class PolicyGradient {
 public:
  // Parameters and gradient lie in memory of the caller's, as `policy` says.
  PolicyGradient(const Policy& policy, float* parameters, float* gradient)
      : policy_(policy), parameters_(parameters), gradient_(gradient) {}

  const Policy& policy() const { return policy_; }
  float* parameters() const { return parameters_; }
  float* gradient() const { return gradient_; }

  // Overwrites the gradient with that of the loss on some rows of a rollout. Its norm is not
  // measured. Where they are the rows of the call before, most of them is there already.
  PolicyMetrics compute(const PolicyRollout& rollout, const std::int64_t* rows, std::size_t n,
                        const PolicyLoss& loss, Team& team, bool are_as_before = false);

  // What the networks say of the rows of a rollout, each [n_rows].
  void evaluate(const PolicyRollout& rollout, float* log_probs, float* entropies, float* values);

 private:
  // Part of the rows, and of their sums.
  struct Lane {
    std::size_t first, last;
    std::size_t critic_first, critic_last;  // of the critic's inputs
    std::vector<float> gradient;            // of this lane, but for the first one's
    MlpMemory actor, critic;
    HeadMemory head;
    Matrix output_grad, slopes, value_grad, shared;
    PolicySums sums;
    double entropy, squares;
  };

  void split(std::size_t n, std::size_t n_critic_rows);
  void improve_actor(const PolicyLoss& loss, float* gradient, Lane* lane) const;
  void improve_critic(const PolicyLoss& loss, float* gradient, Lane* lane) const;
  double measure_values(const PolicyLoss& loss, std::size_t first, std::size_t n,
                        const Matrix& output, Lane* lane) const;
  double measure_shared_values(const PolicyLoss& loss, std::size_t first, std::size_t n,
                               const Matrix& output, Lane* lane) const;
  void add_lanes(Team& team);

  const Policy& policy_;
  float* parameters_;
  float* gradient_;
  Minibatch minibatch_;
  std::vector<Lane> lanes_;
  std::size_t n_lanes_ = 0;
};

}  // namespace sharpwave
