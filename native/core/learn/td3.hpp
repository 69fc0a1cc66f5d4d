// TD3, DDPG and TD3+BC (src/sharpwave/algorithms/td3.py, td3_bc.py): one gradient step.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "core/learn/critics.hpp"
#include "core/learn/deterministic_actor.hpp"
#include "core/learn/noise.hpp"
#include "core/learn/optimizer.hpp"

namespace sharpwave {

struct Td3Options {
  float target_noise, noise_clip;  // deviation and bound of the noise on the next actions
  double max_grad_norm;
  float tau;                       // share of the new weights that the target networks take
  bool moves_actor;                // in this step, and all target networks
  std::optional<float> bc_weight;  // of the values against cloning the actions
};

// Parameters and gradients, in memory of the caller's.
struct Td3Memory {
  float *actor, *actor_grad;
  float *critics, *critics_grad;
  float *target_actor, *target_critics;
};

struct Td3Optimizers {
  Adam *actor, *critics;
};

struct Td3Metrics {
  double critic_loss, q_value;
  double actor_loss;  // of steps that move the actor
};

class Td3 {
 public:
  Td3(const DeterministicActor& actor, Critics critics, const Td3Memory& memory)
      : actor_(actor),
        critics_(std::move(critics)),
        memory_(memory),
        actor_gradient_(memory.actor_grad, actor_.n_parameters()),
        critics_gradient_(memory.critics_grad, critics_.n_parameters()) {}

  const DeterministicActor& actor() const { return actor_; }

  // One step of the critics, and perhaps of the rest. Noise is [n, n_actions]. Writes the mean
  // sizes [n] of the critics' errors.
  Td3Metrics step(const ContinuousRows& rows, const Noise& noise, const Td3Options& options,
                  const Td3Optimizers& optimizers, float* td_errors, Team& team);

 private:
  // What the slow actor would do next, with noise.
  void find_next_actions(const ContinuousRows& rows, const Noise& noise, const Td3Options& options,
                         Team& team);
  // What the critics should say; their mean.
  double find_targets(const ContinuousRows& rows, Team& team);
  // Fills the gradient of the actor; the loss.
  double climb(const ContinuousRows& rows, const std::optional<float>& bc_weight, Team& team);
  // Adds the gradient of the mean squared error of the actor's actions; that error.
  double clone(const ContinuousRows& rows);

  DeterministicActor actor_;
  Critics critics_;
  Td3Memory memory_;
  LaneGradients actor_gradient_, critics_gradient_;
  Lanes lanes_{0};
  std::vector<DeterministicPass> passes_;  // of each lane
  Matrix x_, next_x_, new_x_;              // observations with actions: stored, next, the actor's
  Matrix noise_, action_grad_;
  std::vector<float> wanted_;
  std::vector<std::size_t> which_;
};

}  // namespace sharpwave
