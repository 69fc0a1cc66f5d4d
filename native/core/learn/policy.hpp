// An actor with a head and a critic, on the same observations or on inputs of their own, over one
// flat vector of parameters.
//
// Parameters lie as in torch's module: log standard deviations (of continuous actions only), actor,
// critic.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/learn/heads.hpp"
#include "core/learn/mlp.hpp"

namespace sharpwave {

class Policy {
 public:
  Policy(std::size_t n_inputs, const std::vector<std::size_t>& actor_hidden,
         const std::vector<std::size_t>& critic_hidden, Activation activation,
         std::unique_ptr<Head> head)
      : Policy(n_inputs, n_inputs, actor_hidden, critic_hidden, activation, std::move(head)) {}
  Policy(std::size_t n_inputs, std::size_t n_critic_inputs,
         const std::vector<std::size_t>& actor_hidden,
         const std::vector<std::size_t>& critic_hidden, Activation activation,
         std::unique_ptr<Head> head)
      : head_(std::move(head)),
        actor_(layer_sizes(n_inputs, actor_hidden, head_->n_outputs()), activation),
        critic_(layer_sizes(n_critic_inputs, critic_hidden, 1), activation) {}

  const Head& head() const { return *head_; }
  const Mlp& actor() const { return actor_; }
  const Mlp& critic() const { return critic_; }

  std::size_t n_inputs() const { return actor_.n_inputs(); }
  std::size_t n_critic_inputs() const { return critic_.n_inputs(); }
  // Where the actor's parameters start, and where the critic's do.
  std::size_t actor_start() const { return head_->n_log_stds(); }
  std::size_t critic_start() const { return actor_start() + actor_.n_parameters(); }
  std::size_t n_parameters() const { return critic_start() + critic_.n_parameters(); }

 private:
  std::unique_ptr<Head> head_;
  Mlp actor_, critic_;
};

}  // namespace sharpwave
