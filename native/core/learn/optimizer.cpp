#include "core/learn/optimizer.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/learn/blocks.hpp"

namespace sharpwave {

double clip_norm(float* gradient, std::size_t n, double max_norm, Team& team) {
  std::vector<double> squares(n_blocks(n));
  for_blocks(n, team, [&](std::size_t block, std::size_t first, std::size_t size) {
    squares[block] = kernels().learn.sum_of_squares(gradient + first, size);
  });
  const double norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  const double length = norm + 1e-6;
  if (!(length <= max_norm)) {
    const auto factor = static_cast<float>(max_norm / length);
    for_blocks(n, team, [&](std::size_t, std::size_t first, std::size_t size) {
      kernels().learn.scale(gradient + first, factor, size);
    });
  }
  return norm;
}

void follow(float* slow, const float* fast, std::size_t n, float tau, Team& team) {
  for_blocks(n, team, [&](std::size_t, std::size_t first, std::size_t size) {
    if (tau == 1.0f) {  // which rounding must not change
      std::copy_n(fast + first, size, slow + first);
    } else {
      kernels().stats.f32.polyak(slow + first, fast + first, size, tau);
    }
  });
}

template <typename Optimizer>
void descend(float* parameters, const float* gradient, std::size_t n, Optimizer* optimizer,
             Team& team) {
  optimizer->begin_step();
  for_blocks(n, team, [&](std::size_t, std::size_t first, std::size_t size) {
    optimizer->move(parameters, gradient, first, size);
  });
}

template void descend(float*, const float*, std::size_t, Adam*, Team&);
template void descend(float*, const float*, std::size_t, Rmsprop*, Team&);

void take_step(float* parameters, float* gradient, std::size_t n, double max_norm, Adam* optimizer,
               Team& team) {
  if (std::isfinite(max_norm)) clip_norm(gradient, n, max_norm, team);
  descend(parameters, gradient, n, optimizer, team);
}

}  // namespace sharpwave
