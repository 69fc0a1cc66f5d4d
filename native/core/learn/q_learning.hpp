// Q-learning (src/sharpwave/algorithms/dqn.py): the gradient of its loss, and one step of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/learn/lane_gradients.hpp"
#include "core/learn/lanes.hpp"
#include "core/learn/optimizer.hpp"
#include "core/learn/q_network.hpp"
#include "core/learn/replay_rows.hpp"
#include "core/learn/team.hpp"

namespace sharpwave {

struct QRows : ReplayRows {
  const std::int64_t* actions = nullptr;       // [n, n_choices], each from 0 on
  const std::uint8_t* next_allowed = nullptr;  // [n, n_options]; null where everything is
};

struct QOptions {
  bool is_double;  // the online network chooses what the target network values
  bool is_huber;   // otherwise the square
  double max_grad_norm;
  float tau;  // share of the new weights that the target network takes
};

struct QMetrics {
  double loss = 0, q_value = 0, td_error = 0, grad_norm = 0;
};

class QLearning {
 public:
  // Parameters of the network, of its target network and the gradient lie in memory of the
  // caller's.
  QLearning(const QNetwork& network, float* online, float* target, float* gradient)
      : network_(network),
        online_(online),
        target_(target),
        gradient_(gradient),
        gradients_(gradient, network.n_parameters()) {}

  // Overwrites the gradient with that of the loss, and writes the errors [n] of the values. The
  // norm is not measured.
  QMetrics compute(const QRows& rows, const QOptions& options, float* td_errors, Team& team);
  // Then moves the network, and its target network after it.
  QMetrics step(const QRows& rows, const QOptions& options, Adam* optimizer, float* td_errors,
                Team& team);

 private:
  struct Lane {
    QMemory online, chooser, target;
    Matrix grad;
    std::vector<std::size_t> options;  // one of each choice
    double loss, q_value, td_error;
  };

  // Fills the gradient of the values of a lane.
  void differentiate(const QRows& rows, std::size_t first, std::size_t n, const QOptions& options,
                     float* td_errors, Lane* lane) const;
  // The mean of what one row of values says of some options.
  float mean_of(const float* values, const std::vector<std::size_t>& options) const;

  const QNetwork& network_;
  float* online_;
  float* target_;
  float* gradient_;
  LaneGradients gradients_;
  std::vector<Lane> lanes_;
};

}  // namespace sharpwave
