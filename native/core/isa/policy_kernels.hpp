// Kernels of the policy heads and losses of native/core/learn.
//
// They work on columns: a number of every row of a minibatch, side by side. `n` is a multiple of
// kLanes; rows that fill up the last lanes have zeros in the inputs and weight 0.
#pragma once

#include <cstddef>

namespace sharpwave {

constexpr std::size_t kLanes = 16;

// One choice among some options, whose logits and probabilities are [n_options, stride].
struct Choice {
  std::size_t n_options, stride;
  const float* actions;  // [n] numbers of the options taken
  const float* masks;    // [n_options, mask_stride], 0 where an option is forbidden; may be null
  std::size_t mask_stride;
};

// What the loss of a row weighs: w = -dL/dlog_prob and c = -dL/dentropy.
struct Slopes {
  const float* w;
  const float* c;
};

// Sums over rows, each with its weight.
struct PolicySums {
  double gain, kl, clipped;
};

struct PolicyKernels {
  // Logits become log-probabilities; writes probabilities and the entropy [n] of the choice, adds
  // to the log-probability [n] of the actions.
  void (*choice_forward)(const Choice& choice, float* logits, float* probs, float* entropy,
                         float* log_prob, std::size_t n);
  // The gradient by the logits, which replaces the probabilities.
  void (*choice_backward)(const Choice& choice, const float* log_probs, float* probs,
                          const float* entropy, const Slopes& slopes, std::size_t n);
  // One bit. The logits stay; adds to entropy and log-probability.
  void (*bit_forward)(const float* logits, const float* bits, float* probs, float* entropy,
                      float* log_prob, std::size_t n);
  // The gradient by the logits, which replaces the probabilities.
  void (*bit_backward)(const float* logits, const float* bits, float* probs, const Slopes& slopes,
                       std::size_t n);
  // One normal variable: means become errors (mean - action) * precision; adds to the
  // log-probability all but its constants.
  void (*normal_forward)(float* means, const float* actions, float precision, float* log_prob,
                         std::size_t n);
  // The gradient by the mean, which replaces the errors; returns that by the log standard
  // deviation, but for the entropy's.
  double (*normal_backward)(float* errors, float precision, const float* w, std::size_t n);

  // The clipped surrogate; writes w of `Slopes`.
  PolicySums (*clipped_surrogate)(const float* log_probs, const float* old_log_probs,
                                  const float* advantages, const float* weights, float clip,
                                  float* w, std::size_t n);
  // A log pi; writes w of `Slopes`.
  double (*policy_gradient)(const float* log_probs, const float* advantages, const float* weights,
                            float* w, std::size_t n);
  // Squared errors of the values, which beyond `delta` grow linearly; their halved derivatives,
  // times `factor` and weight, replace the values. `old_values` is null where nothing is clipped.
  double (*squared_errors)(float* values, const float* returns, const float* old_values, float clip,
                           const float* weights, float factor, float delta, std::size_t n);
  double (*dot)(const float* a, const float* b, std::size_t n);
};

}  // namespace sharpwave
