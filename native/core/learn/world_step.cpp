#include "core/learn/world_step.hpp"

#include <algorithm>
#include <cmath>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

void fill_rows(const float* row, std::size_t n, std::size_t rows, float* out) {
  for (std::size_t i = 0; i < rows; ++i) std::copy_n(row, n, out + i * n);
}

}  // namespace

void multiply(const Product& product) {
  static thread_local std::vector<float> work;
  work.resize(kernels().learn.product_work(product.k));
  kernels().learn.product(product, work.data());
}

void DenseLayer::forward(const float* x, std::size_t rows, float* y) const {
  fill_rows(bias, n, rows, y);
  multiply({rows, n, k, {x, k, 1}, {weight, 1, k}, y, n, true});
  if (scale != nullptr) kernels().world.norm_silu(y, scale, rows, n, y);
}

void forward_layers(const std::vector<DenseLayer>& layers, const float* x, std::size_t rows,
                    float* y) {
  static thread_local std::vector<float> hidden[2];
  for (std::size_t i = 0; i < layers.size(); ++i) {
    float* out = y;
    if (i + 1 < layers.size()) {
      hidden[i % 2].resize(rows * layers[i].n);
      out = hidden[i % 2].data();
    }
    layers[i].forward(x, rows, out);
    x = out;
  }
}

void ImaginedStep::forward(const float* before, const float* drawn, const float* actions,
                           const float* noise, std::size_t rows, float* deter_after,
                           float* drawn_after) const {
  const std::size_t d = deter(), s = stoch(), a = of_action.k, h = of_deter.n, part = d / blocks;
  static thread_local std::vector<float> memory;
  memory.resize(rows * (a + h + 4 * d + 2 * s));
  float* scaled = memory.data();
  float* hidden = scaled + rows * a;
  float* mixed = hidden + rows * h;
  float* all_gates = mixed + rows * d;  // [K, rows, 3 D / K]
  float* logits = all_gates + 3 * rows * d;
  float* work = logits + rows * s;

  for (std::size_t i = 0; i < rows * a; ++i) {
    scaled[i] = actions[i] / std::max(1.0f, std::abs(actions[i]));
  }
  fill_rows(bias, d, rows, mixed);
  const auto mix = [&](const DenseLayer& layer, const float* x, const float* weight) {
    layer.forward(x, rows, hidden);
    multiply({rows, d, h, {hidden, h, 1}, {weight, d, 1}, mixed, d, true});
  };
  mix(of_action, scaled, action);
  mix(of_deter, before, shared);
  mix(of_stoch, drawn, shared + h * d);
  for (std::size_t k = 0; k < blocks; ++k) {
    multiply({rows,
              part,
              part,
              {before + k * part, d, 1},
              {own + k * part * part, part, 1},
              mixed + k * part,
              d,
              true});
  }
  kernels().world.norm_silu(mixed, scale, rows, d, mixed);
  for (std::size_t k = 0; k < blocks; ++k) {
    float* target = all_gates + k * rows * 3 * part;
    fill_rows(gates_bias + k * 3 * part, 3 * part, rows, target);
    multiply({rows,
              3 * part,
              part,
              {mixed + k * part, d, 1},
              {gates + k * 3 * part * part, 3 * part, 1},
              target,
              3 * part,
              true});
  }
  kernels().world.remember(all_gates, before, blocks, rows, part, deter_after);
  forward_layers(prior, deter_after, rows, logits);
  kernels().world.draw_classes(logits, noise, rows * s / classes, classes, share, work,
                               drawn_after);
}

}  // namespace sharpwave
