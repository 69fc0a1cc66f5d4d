// The body of every kernels_<isa>.cpp. Defines `make_table()` for the instruction set being
// compiled.
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

// clang-format off: each file uses the ones before it.
#include "core/isa/simd.inl"
#include "core/isa/exp.inl"
#include "core/isa/log.inl"
#include "core/isa/returns.inl"
#include "core/isa/llm.inl"
#include "core/isa/stats.inl"
#include "core/isa/tree.inl"
#include "core/isa/copy.inl"
#include "core/isa/stream.inl"
#include "core/isa/rows.inl"
#include "core/isa/checksum.inl"
#include "core/isa/product.inl"
#include "core/isa/activations.inl"
#include "core/isa/learn.inl"
#include "core/isa/policy.inl"
#include "core/isa/columns.inl"
#include "core/isa/replay.inl"
#include "core/isa/sin_cos.inl"
#include "core/isa/world.inl"

namespace envs {
#include "envs/env_math.inl"
#include "envs/cart_pole.inl"
#include "envs/pendulum.inl"
#include "envs/acrobot.inl"
#include "envs/mountain_car.inl"
#include "envs/mountain_car_continuous.inl"
#include "envs/simple_spread.inl"
#include "envs/step.inl"
}  // namespace envs
// clang-format on

template <typename T>
constexpr ReturnsKernelsOf<T> returns_table_of() {
  return {gae<T>, vtrace<T>, n_step_returns<T>, discounted_returns<T>};
}
constexpr ReturnsKernels returns_table() {
  return {returns_table_of<float>(), returns_table_of<double>()};
}

constexpr LlmKernels llm_table() {
  return {{token_kl<float>, group_advantages<float>}, {token_kl<double>, group_advantages<double>}};
}

constexpr StatsKernels stats_table() {
  return {{column_moments<float>, normalize<float>, polyak<float>},
          {column_moments<double>, normalize<double>, polyak<double>}};
}

constexpr TreeKernels tree_table() {
  return {refresh_path, refresh_nodes, refresh_range, tree_find, power, ratio_power};
}

constexpr RowsKernels rows_table() { return {gather_rows, scatter_rows}; }

constexpr ChecksumKernels checksum_table() { return {crc32c_kernel}; }

constexpr LearnKernels learn_table() {
  return {
      product,
      product_work,
      bias_activation<Identity>,
      {bias_activation<Tanh>, bias_activation<Relu>, bias_activation<LeakyRelu>,
       bias_activation<Elu>, bias_activation<Selu>, bias_activation<Gelu>, bias_activation<Silu>},
      {activation_backward<Tanh>, activation_backward<Relu>, activation_backward<LeakyRelu>,
       activation_backward<Elu>, activation_backward<Selu>, activation_backward<Gelu>,
       activation_backward<Silu>},
      add_columns,
      add,
      sum_of_squares,
      scale,
      adam,
      rmsprop};
}

constexpr PolicyKernels policy_table() {
  return {choice_forward,  choice_backward,   bit_forward,     bit_backward,   normal_forward,
          normal_backward, clipped_surrogate, policy_gradient, squared_errors, dot};
}

constexpr ReplayKernels replay_table() { return {squash, tanh_in_place}; }

constexpr WorldKernels world_table() {
  return {norm_silu,         norm_silu_backward, remember,
          remember_backward, draw_classes,       draw_classes_backward,
          two_hot_mean,      two_hot_loss,       two_hot_loss_backward};
}

constexpr EnvTable env_table() {
  return envs::env_table_of(std::make_index_sequence<kMostSpreadAgents>());
}

constexpr ColumnKernels column_table() {
  return {dense_columns<Identity>,
          {dense_columns<Tanh>, dense_columns<Relu>, dense_columns<LeakyRelu>, dense_columns<Elu>,
           dense_columns<Selu>, dense_columns<Gelu>, dense_columns<Silu>}};
}

}  // namespace
}  // namespace sharpwave
