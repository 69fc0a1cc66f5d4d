// Steps of a world model's imagination. Called positionally by
// src/sharpwave/primitives/world/tensors.py, which documents them.
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/learn/world_step.hpp"

namespace sharpwave::bind {
namespace {

using Floats = ArrayArg<float>;
using Out = ArrayOut<float>;

void check(bool holds, const char* expected) {
  if (!holds) throw std::invalid_argument(expected);
}

// The arrays of a tuple, kept while their memory is used.
class Weights {
 public:
  explicit Weights(PyObject* tuple) {
    if (!PyTuple_Check(tuple)) throw TypeError("weights must be a tuple of arrays");
    arrays_.reserve(static_cast<std::size_t>(PyTuple_GET_SIZE(tuple)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      arrays_.emplace_back(PyTuple_GET_ITEM(tuple, i), "weights");
    }
  }

  // The next one, of so many numbers.
  const float* next(std::size_t size) {
    const Floats& array = next();
    check(array.size() == size, "weights must have shapes that fit each other");
    return array.data();
  }

  // The next weight [n, k], its bias, and its scale unless it is the last layer.
  DenseLayer layer(std::size_t k, bool has_scale) {
    const Floats& weight = next();
    check(weight.ndim() == 2 && static_cast<std::size_t>(weight.dim(1)) == k,
          "weights must have shapes that fit each other");
    const auto n = static_cast<std::size_t>(weight.dim(0));
    const float* bias = next(n);
    return {weight.data(), bias, has_scale ? next(n) : nullptr, n, k};
  }

  // All that are left: layers with scales, and one without.
  std::vector<DenseLayer> layers(std::size_t k) {
    std::vector<DenseLayer> found;
    while (arrays_.size() - at_ > 2) {
      found.push_back(layer(k, true));
      k = found.back().n;
    }
    found.push_back(layer(k, false));
    return found;
  }

 private:
  const Floats& next() {
    check(at_ < arrays_.size(), "weights must have more arrays");
    return arrays_[at_++];
  }

  std::vector<Floats> arrays_;
  std::size_t at_ = 0;
};

std::size_t last_dim(const Floats& array) {
  check(array.ndim() > 0 && array.size() > 0, "arrays must have some numbers");
  return static_cast<std::size_t>(array.dim(array.ndim() - 1));
}

// weights, x [..., k] -> [..., n]
PyObject* head(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("head", nargs, 2);
    Weights weights(args[0]);
    const Floats x(args[1], "x");
    const std::size_t k = last_dim(x), rows = x.size() / k;
    const auto layers = weights.layers(k);
    std::vector<npy_intp> shape(x.shape(), x.shape() + x.ndim());
    shape.back() = static_cast<npy_intp>(layers.back().n);
    Out out(nullptr, "out", x.ndim(), shape.data());
    {
      const MaybeReleaseGil release(static_cast<double>(rows * k));
      forward_layers(layers, x.data(), rows, out.data());
    }
    return out.finish(x.torch());
  });
}

// weights, deter [B, D], stoch [B, S], action [B, A], noise [B, latents, classes], blocks, share
PyObject* imagined_step(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("imagined_step", nargs, 7);
    Weights weights(args[0]);
    const Floats deter(args[1], "deter"), stoch(args[2], "stoch"), action(args[3], "action");
    const Floats noise(args[4], "noise");
    const std::size_t d = last_dim(deter), s = last_dim(stoch), a = last_dim(action);
    const std::size_t rows = deter.size() / d, blocks = as_size(args[5], "blocks");
    check(blocks > 0 && d % blocks == 0, "blocks must divide the size of deter");
    check(stoch.size() == rows * s && action.size() == rows * a && noise.size() == rows * s &&
              s % last_dim(noise) == 0,
          "deter, stoch, action and noise must have as many rows");
    ImaginedStep step{};
    step.of_deter = weights.layer(d, true);
    step.of_stoch = weights.layer(s, true);
    step.of_action = weights.layer(a, true);
    const std::size_t h = step.of_deter.n, part = d / blocks;
    check(step.of_stoch.n == h && step.of_action.n == h,
          "weights must have shapes that fit each other");
    step.shared = weights.next(2 * h * d);
    step.action = weights.next(h * d);
    step.bias = weights.next(d);
    step.own = weights.next(d * part);
    step.scale = weights.next(d);
    step.gates = weights.next(3 * d * part);
    step.gates_bias = weights.next(3 * d);
    step.prior = weights.layers(d);
    check(step.prior.back().n == s, "weights must have shapes that fit each other");
    step.blocks = blocks;
    step.classes = last_dim(noise);
    step.share = static_cast<float>(as_fraction(args[6], "share"));
    Out after(nullptr, "out", deter.ndim(), deter.shape());
    Out drawn(nullptr, "out", stoch.ndim(), stoch.shape());
    {
      const MaybeReleaseGil release(static_cast<double>(rows * d));
      step.forward(deter.data(), stoch.data(), action.data(), noise.data(), rows, after.data(),
                   drawn.data());
    }
    const Ref first = Ref::take(after.finish(deter.torch()));
    const Ref second = Ref::take(drawn.finish(deter.torch()));
    return PyTuple_Pack(2, first.get(), second.get());
  });
}

PyMethodDef functions[] = {
    fast_function("head", head),
    fast_function("imagined_step", imagined_step),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_world_steps(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
