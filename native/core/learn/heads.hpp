// What an actor's output means: log-probabilities of actions, entropies, and their gradients.
//
// Heads work on columns: a number of every row side by side (see policy_kernels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa/policy_kernels.hpp"
#include "core/learn/matrix.hpp"
#include "core/rng.hpp"

namespace sharpwave {

// Rows of a minibatch, as columns that are `stride` floats apart.
struct HeadRows {
  std::size_t n, stride;
  const float* actions;  // [n_actions, n]
  const float* masks;    // [n_outputs, n], 0 where an option is forbidden; may be null
};

// Where the random numbers of rows come from: a function of the row, whoever draws and when.
struct Draws {
  Philox random;
  std::uint64_t first_row = 0;
};

// What forward() leaves behind.
struct HeadMemory {
  Matrix log_prob, entropy;  // [1, n]
  Matrix outputs, grads;     // [n_outputs, n]
  Matrix entropies;          // [number of choices, n]
};

class Head {
 public:
  virtual ~Head() = default;

  std::size_t n_outputs() const { return n_outputs_; }
  std::size_t n_actions() const { return n_actions_; }
  // Parameters of its own.
  std::size_t n_log_stds() const { return n_log_stds_; }
  bool is_maskable() const { return n_log_stds_ == 0; }

  // Writes actions into columns, for an output [n, n_outputs] of the actor: drawn, or without
  // draws the most likely ones. Those of `rows` are not read.
  virtual void choose(const HeadRows& rows, const float* output, const float* log_stds,
                      const Draws* draws, float* actions) const = 0;
  // Log-probabilities and entropies, in `memory`, for an output [n, n_outputs] of the actor.
  virtual void forward(const HeadRows& rows, const float* output, const float* log_stds,
                       HeadMemory* memory) const = 0;
  // After forward(): writes the gradient by the output, adds to that of the log standard
  // deviations.
  virtual void backward(const HeadRows& rows, const Slopes& slopes, const float* log_stds,
                        float* output_grad, float* log_stds_grad, HeadMemory* memory) const = 0;

 protected:
  Head(std::size_t n_outputs, std::size_t n_actions, std::size_t n_log_stds)
      : n_outputs_(n_outputs), n_actions_(n_actions), n_log_stds_(n_log_stds) {}

 private:
  std::size_t n_outputs_, n_actions_, n_log_stds_;
};

// Independent choices, each among so many options, from logits side by side.
std::unique_ptr<Head> make_choices(std::vector<std::size_t> options);
// Independent bits, from a logit each.
std::unique_ptr<Head> make_bits(std::size_t n);
// Independent normal variables, with means from the actor and one log standard deviation each.
std::unique_ptr<Head> make_normals(std::size_t n);

}  // namespace sharpwave
