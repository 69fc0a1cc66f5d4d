// Estimates of what actions are worth (src/sharpwave/nn/critics.py), each a network of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/learn/lane_gradients.hpp"
#include "core/learn/lanes.hpp"
#include "core/learn/mlp.hpp"
#include "core/learn/replay_rows.hpp"
#include "core/learn/team.hpp"

namespace sharpwave {

// Passes of critics over rows, whose parameters lie as in torch's nn.StackedMLP. Critics and lanes
// of rows go apart, on as many threads as there are.
class Critics {
 public:
  // n_inputs: of observation and action together.
  Critics(std::size_t n, std::size_t n_inputs, const std::vector<std::size_t>& hidden,
          Activation activation);

  std::size_t n() const { return networks_.size(); }
  std::size_t n_inputs() const { return networks_.front().n_inputs(); }
  std::size_t n_parameters() const { return networks_.front().n_parameters(); }

  // Values [n, n_rows] of x [n_rows, n_inputs] by the first n critics.
  const Matrix& forward(const float* parameters, const Matrix& x, std::size_t n, Team& team);

  // Overwrites the gradient with that of scale * sum over critics of mean(w (Q(x) - wanted)^2);
  // returns the loss and writes the mean size of the errors of each row.
  double regress(const float* parameters, const Matrix& x, const float* wanted,
                 const ReplayRows& rows, float scale, LaneGradients* gradient, float* error_sizes,
                 Team& team);

  // After forward(): the gradient [n_rows, n_inputs - first_input] of sum over rows of
  // slope * Q_which(row)(x), by the inputs from `first_input` on.
  void input_gradient(const float* parameters, const std::vector<std::size_t>& which, float slope,
                      std::size_t first_input, Matrix* gradient, Team& team);

 private:
  // Of one critic on one lane.
  struct Pass {
    MlpMemory memory;
    Matrix grad, inputs;
    std::vector<std::size_t> rows;
  };

  Pass& pass(std::size_t critic, std::size_t lane) { return passes_[lane * n() + critic]; }
  void split(std::size_t n_rows);
  // Calls body(critic, lane) for the first n critics on all lanes, those of a critic in order where
  // there are no threads for them.
  void for_passes(std::size_t n, Team& team,
                  const std::function<void(std::size_t, std::size_t)>& body) const;
  void climb(const float* parameters, const std::vector<std::size_t>& which, float slope,
             std::size_t first_input, std::size_t critic, std::size_t lane, Matrix* gradient);

  std::vector<Mlp> networks_;
  std::vector<Pass> passes_;
  Lanes lanes_{0};
  Matrix values_;               // [n, n_rows]
  std::vector<double> losses_;  // of each pass
};

// Rows of two matrices side by side: joined [n, n_left + n_right].
void join_rows(const float* left, std::size_t n_left, const float* right, std::size_t n_right,
               std::size_t n, float* joined);
// The least value of each row and which critic gave it; values [n, n_rows].
void find_least(const Matrix& values, float* least, std::vector<std::size_t>* which);

}  // namespace sharpwave
