// What a step of a world model applies to single rows. Called positionally by
// src/sharpwave/primitives/world/tensors.py, which documents them.
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/isa/kernels.hpp"

namespace sharpwave::bind {
namespace {

using Floats = ArrayArg<float>;

const WorldKernels& world() { return kernels().world; }

double work_ns(std::size_t numbers) { return 1.0 * static_cast<double>(numbers); }

void check_size(const Floats& array, const char* name, std::size_t expected) {
  if (array.size() == expected) return;
  throw std::invalid_argument(std::string(name) + " must hold " + std::to_string(expected) +
                              " numbers, got " + std::to_string(array.size()));
}

void check_dims(const Floats& array, const char* name, int least) {
  if (array.ndim() >= least && array.size() > 0) return;
  throw std::invalid_argument(std::string(name) + " must have at least " + std::to_string(least) +
                              " dimensions and some numbers");
}

std::size_t last_dim(const Floats& array) {
  return static_cast<std::size_t>(array.dim(array.ndim() - 1));
}

ArrayOut<float> same_shape(const Floats& array) {
  return ArrayOut<float>(nullptr, "out", array.ndim(), array.shape());
}

PyObject* pair(ArrayOut<float>& first, ArrayOut<float>& second, bool torch) {
  const Ref one = Ref::take(first.finish(torch));
  const Ref other = Ref::take(second.finish(torch));
  return PyTuple_Pack(2, one.get(), other.get());
}

// x [..., n], scale [n]
PyObject* norm_silu(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("norm_silu", nargs, 2);
    const Floats x(args[0], "x"), scale(args[1], "scale");
    check_dims(x, "x", 1);
    const std::size_t n = last_dim(x);
    check_size(scale, "scale", n);
    ArrayOut<float> out = same_shape(x);
    {
      const MaybeReleaseGil release(work_ns(x.size()));
      world().norm_silu(x.data(), scale.data(), x.size() / n, n, out.data());
    }
    return out.finish(x.torch());
  });
}

// x [..., n], scale [n], grad [..., n] -> of_x [..., n], of_scale [n]
PyObject* norm_silu_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("norm_silu_backward", nargs, 3);
    const Floats x(args[0], "x"), scale(args[1], "scale"), grad(args[2], "grad");
    check_dims(x, "x", 1);
    const std::size_t n = last_dim(x);
    check_size(scale, "scale", n);
    check_size(grad, "grad", x.size());
    ArrayOut<float> of_x = same_shape(x), of_scale = same_shape(scale);
    {
      const MaybeReleaseGil release(work_ns(2 * x.size()));
      std::fill_n(of_scale.data(), n, 0.0f);
      world().norm_silu_backward(x.data(), scale.data(), grad.data(), x.size() / n, n, of_x.data(),
                                 of_scale.data());
    }
    return pair(of_x, of_scale, x.torch());
  });
}

// x [..., n], scale [n], grad [..., n] -> of_x
PyObject* norm_silu_rows(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("norm_silu_rows", nargs, 3);
    const Floats x(args[0], "x"), scale(args[1], "scale"), grad(args[2], "grad");
    check_dims(x, "x", 1);
    const std::size_t n = last_dim(x);
    check_size(scale, "scale", n);
    check_size(grad, "grad", x.size());
    ArrayOut<float> of_x = same_shape(x);
    {
      const MaybeReleaseGil release(work_ns(2 * x.size()));
      std::vector<float> of_scale(n);
      world().norm_silu_backward(x.data(), scale.data(), grad.data(), x.size() / n, n, of_x.data(),
                                 of_scale.data());
    }
    return of_x.finish(x.torch());
  });
}

// gates [blocks, rows, 3 n] and before [rows, blocks * n]
struct Gates {
  Floats gates, before;
  std::size_t blocks, rows, n;

  Gates(PyObject* gates_object, PyObject* before_object)
      : gates(gates_object, "gates"), before(before_object, "before") {
    if (gates.ndim() != 3 || gates.size() == 0 || gates.dim(2) % 3 != 0) {
      throw std::invalid_argument("gates must have the shape [blocks, rows, 3 n]");
    }
    blocks = static_cast<std::size_t>(gates.dim(0));
    rows = static_cast<std::size_t>(gates.dim(1));
    n = static_cast<std::size_t>(gates.dim(2)) / 3;
    check_size(before, "before", blocks * rows * n);
  }
};

PyObject* remember(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("remember", nargs, 2);
    const Gates in(args[0], args[1]);
    ArrayOut<float> out = same_shape(in.before);
    {
      const MaybeReleaseGil release(work_ns(in.gates.size()));
      world().remember(in.gates.data(), in.before.data(), in.blocks, in.rows, in.n, out.data());
    }
    return out.finish(in.gates.torch());
  });
}

PyObject* remember_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("remember_backward", nargs, 3);
    const Gates in(args[0], args[1]);
    const Floats grad(args[2], "grad");
    check_size(grad, "grad", in.before.size());
    ArrayOut<float> of_gates = same_shape(in.gates), of_before = same_shape(in.before);
    {
      const MaybeReleaseGil release(work_ns(2 * in.gates.size()));
      world().remember_backward(in.gates.data(), in.before.data(), grad.data(), in.blocks, in.rows,
                                in.n, of_gates.data(), of_before.data());
    }
    return pair(of_gates, of_before, in.gates.torch());
  });
}

// logits [..., n], noise or grad [..., n], share
template <typename Compute>
PyObject* of_classes(PyObject* const* args, const char* other_name, Compute compute) {
  const Floats logits(args[0], "logits"), other(args[1], other_name);
  check_dims(logits, "logits", 1);
  check_size(other, other_name, logits.size());
  const float share = static_cast<float>(as_fraction(args[2], "share"));
  const std::size_t n = last_dim(logits);
  ArrayOut<float> out = same_shape(logits);
  {
    const MaybeReleaseGil release(work_ns(2 * logits.size()));
    compute(logits.data(), other.data(), logits.size() / n, n, share, out.data());
  }
  return out.finish(logits.torch());
}

PyObject* draw_classes(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("draw_classes", nargs, 3);
    return of_classes(args, "noise",
                      [](const float* logits, const float* noise, std::size_t rows, std::size_t n,
                         float share, float* out) {
                        std::vector<float> work(rows * n);
                        world().draw_classes(logits, noise, rows, n, share, work.data(), out);
                      });
  });
}

PyObject* draw_classes_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("draw_classes_backward", nargs, 3);
    return of_classes(args, "grad", world().draw_classes_backward);
  });
}

constexpr std::size_t kMostBins = 1024;

// Logits over bins [..., n] and the bins [n].
struct Binned {
  Floats logits, bins;
  std::size_t n, rows;

  Binned(PyObject* logits_object, PyObject* bins_object)
      : logits(logits_object, "logits"), bins(bins_object, "bins") {
    check_dims(logits, "logits", 1);
    n = last_dim(logits);
    rows = logits.size() / n;
    check_size(bins, "bins", n);
    if (n < 3 || n > kMostBins) {
      throw std::invalid_argument("bins must be 3 to 1024, got " + std::to_string(n));
    }
  }

  ArrayOut<float> out_of_rows() const {
    return ArrayOut<float>(nullptr, "out", logits.ndim() - 1, logits.shape());
  }
};

// logits, bins
PyObject* two_hot_mean(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("two_hot_mean", nargs, 2);
    const Binned in(args[0], args[1]);
    ArrayOut<float> out = in.out_of_rows();
    {
      const MaybeReleaseGil release(work_ns(in.logits.size()));
      world().two_hot_mean(in.logits.data(), in.bins.data(), in.rows, in.n, out.data());
    }
    return out.finish(in.logits.torch());
  });
}

// logits, bins, targets [k, ...], weights [k]
struct Losses {
  Binned in;
  Floats targets, weights;

  explicit Losses(PyObject* const* args)
      : in(args[0], args[1]), targets(args[2], "targets"), weights(args[3], "weights") {
    check_size(targets, "targets", weights.size() * in.rows);
  }

  TwoHotTargets of() const {
    return {targets.data(), weights.data(), weights.size(), in.bins.data()};
  }
};

PyObject* two_hot_loss(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("two_hot_loss", nargs, 4);
    const Losses given(args);
    ArrayOut<float> out = given.in.out_of_rows();
    {
      const MaybeReleaseGil release(work_ns(given.in.logits.size()));
      world().two_hot_loss(given.in.logits.data(), given.of(), given.in.rows, given.in.n,
                           out.data());
    }
    return out.finish(given.in.logits.torch());
  });
}

// logits, bins, targets, weights, grad [...]
PyObject* two_hot_loss_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("two_hot_loss_backward", nargs, 5);
    const Losses given(args);
    const Floats grad(args[4], "grad");
    check_size(grad, "grad", given.in.rows);
    ArrayOut<float> out = same_shape(given.in.logits);
    {
      const MaybeReleaseGil release(work_ns(given.in.logits.size()));
      world().two_hot_loss_backward(given.in.logits.data(), given.of(), grad.data(), given.in.rows,
                                    given.in.n, out.data());
    }
    return out.finish(given.in.logits.torch());
  });
}

PyMethodDef functions[] = {
    fast_function("norm_silu", norm_silu),
    fast_function("norm_silu_backward", norm_silu_backward),
    fast_function("norm_silu_rows", norm_silu_rows),
    fast_function("remember", remember),
    fast_function("remember_backward", remember_backward),
    fast_function("draw_classes", draw_classes),
    fast_function("draw_classes_backward", draw_classes_backward),
    fast_function("two_hot_mean", two_hot_mean),
    fast_function("two_hot_loss", two_hot_loss),
    fast_function("two_hot_loss_backward", two_hot_loss_backward),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_world_model(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
