// Kernels of world models: what a step of one applies to single rows.
#pragma once

#include <cstddef>

namespace sharpwave {

// Rows of the targets of a loss over bins: losses of several targets are added with their weights.
struct TwoHotTargets {
  const float* values;   // [n_targets, rows]
  const float* weights;  // [n_targets]
  std::size_t n_targets;
  const float* bins;  // [n], ascending
};

struct WorldKernels {
  // SiLU of x / sqrt(mean(x * x) + 1e-4) * scale, for rows of n.
  void (*norm_silu)(const float* x, const float* scale, std::size_t rows, std::size_t n,
                    float* out);
  // Its gradients; that of the scale is added to of_scale [n].
  void (*norm_silu_backward)(const float* x, const float* scale, const float* grad,
                             std::size_t rows, std::size_t n, float* of_x, float* of_scale);
  // u tanh(sigmoid(r) c) + (1 - u) before with u = sigmoid(z - 1), for gates [blocks, rows, 3 n]
  // that hold r, c and z, and rows [rows, blocks * n].
  void (*remember)(const float* gates, const float* before, std::size_t blocks, std::size_t rows,
                   std::size_t n, float* out);
  void (*remember_backward)(const float* gates, const float* before, const float* grad,
                            std::size_t blocks, std::size_t rows, std::size_t n, float* of_gates,
                            float* of_before);
  // One-hot draws of n classes: the largest log((1 - share) softmax(logits) + share / n) + noise.
  // `work` holds rows * n numbers.
  void (*draw_classes)(const float* logits, const float* noise, std::size_t rows, std::size_t n,
                       float share, float* work, float* out);
  // The gradient of these probabilities in the place of the draws'.
  void (*draw_classes_backward)(const float* logits, const float* grad, std::size_t rows,
                                std::size_t n, float share, float* out);
  // The mean of a distribution over n bins, those of one size subtracted first.
  void (*two_hot_mean)(const float* logits, const float* bins, std::size_t rows, std::size_t n,
                       float* out);
  void (*two_hot_loss)(const float* logits, const TwoHotTargets& targets, std::size_t rows,
                       std::size_t n, float* out);
  void (*two_hot_loss_backward)(const float* logits, const TwoHotTargets& targets,
                                const float* grad, std::size_t rows, std::size_t n, float* out);
};

}  // namespace sharpwave
