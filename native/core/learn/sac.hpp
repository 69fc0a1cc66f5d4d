// Soft Actor-Critic (src/sharpwave/algorithms/sac.py): one gradient step.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/learn/critics.hpp"
#include "core/learn/noise.hpp"
#include "core/learn/optimizer.hpp"
#include "core/learn/squashed_actor.hpp"

namespace sharpwave {

struct SacOptions {
  bool learns_alpha;
  float alpha;           // where it is not learned
  float target_entropy;  // where it is
  double max_grad_norm;
  float tau;  // share of the new weights that the slow critics take; 0 in steps that leave them
};

// Parameters and gradients, in memory of the caller's.
struct SacMemory {
  float *actor, *actor_grad;
  float *critics, *critics_grad;
  float *log_alpha, *log_alpha_grad;
  float* targets;  // the slow critics
};

struct SacOptimizers {
  Adam *actor, *critics, *alpha;
};

struct SacMetrics {
  double critic_loss, actor_loss, alpha, alpha_loss, entropy, q_value;
};

class SoftActorCritic {
 public:
  // The sizes of the critics follow from those of the actor.
  SoftActorCritic(const SquashedActor& actor, Critics critics, const SacMemory& memory)
      : actor_(actor),
        critics_(std::move(critics)),
        memory_(memory),
        actor_gradient_(memory.actor_grad, actor_.n_parameters()),
        critics_gradient_(memory.critics_grad, critics_.n_parameters()) {}

  const SquashedActor& actor() const { return actor_; }

  // One step of the weight of entropy, of the critics and of the actor. Noise is [2, n, n_actions]:
  // for obs, then for next_obs. Writes the mean sizes [n] of the critics' errors.
  SacMetrics step(const ContinuousRows& rows, const Noise& noise, const SacOptions& options,
                  const SacOptimizers& optimizers, float* td_errors, Team& team);

 private:
  // Draws actions for observations and for the next ones.
  void sample(const ContinuousRows& rows, const Noise& noise, Team& team);
  // Moves the weight of entropy by what there is too much of it; the loss before.
  double step_alpha(double surplus, Adam* optimizer, Team& team);
  // What the critics should say; their mean.
  double find_targets(const ContinuousRows& rows, float alpha, Team& team);
  // Fills the gradient of the actor; the loss.
  double climb(const ContinuousRows& rows, float alpha, Team& team);

  SquashedActor actor_;
  Critics critics_;
  SacMemory memory_;
  LaneGradients actor_gradient_, critics_gradient_;
  Lanes lanes_{0};
  std::vector<SquashedPass> now_, next_;  // of each lane
  Matrix x_, new_x_, next_x_;             // observations with actions: stored, drawn, drawn next
  std::vector<float> log_probs_, next_log_probs_, wanted_, least_;
  std::vector<std::size_t> which_;
  Matrix action_grad_;
};

}  // namespace sharpwave
