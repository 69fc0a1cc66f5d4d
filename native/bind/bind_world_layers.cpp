// Linear layers of world models and their gradients, for networks whose layers are small. Called
// positionally by src/sharpwave/primitives/world/tensors.py, which documents them.
#include <algorithm>
#include <tuple>
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/isa/kernels.hpp"
#include "core/learn/world_step.hpp"

namespace sharpwave::bind {
namespace {

using Floats = ArrayArg<float>;
using Out = ArrayOut<float>;

void check(bool holds, const char* expected) {
  if (!holds) throw std::invalid_argument(expected);
}

// x [..., k] and weight [n, k]
struct Linear {
  Floats x, weight;
  std::size_t rows, n, k;

  Linear(PyObject* x_object, PyObject* weight_object)
      : x(x_object, "x"), weight(weight_object, "weight") {
    check(weight.ndim() == 2 && weight.size() > 0, "weight must have the shape [n, k]");
    n = static_cast<std::size_t>(weight.dim(0));
    k = static_cast<std::size_t>(weight.dim(1));
    check(x.ndim() > 0 && x.size() > 0 && x.dim(x.ndim() - 1) == weight.dim(1),
          "x must have the shape [..., k] where weight has [n, k]");
    rows = x.size() / k;
  }

  Out out() const {
    std::vector<npy_intp> shape(x.shape(), x.shape() + x.ndim());
    shape.back() = static_cast<npy_intp>(n);
    return Out(nullptr, "out", x.ndim(), shape.data());
  }

  double work_ns() const { return 0.02 * static_cast<double>(rows * n * k); }

  // x weight' + bias, of which there are n numbers or as many for every row.
  void forward(const Floats& bias, float* y) const {
    if (bias.size() == n) {
      for (std::size_t row = 0; row < rows; ++row) std::copy_n(bias.data(), n, y + row * n);
    } else {
      std::copy_n(bias.data(), rows * n, y);
    }
    multiply({rows, n, k, {x.data(), k, 1}, {weight.data(), 1, k}, y, n, true});
  }

  void check_bias(const Floats& bias) const {
    check(bias.size() == n || bias.size() == rows * n,
          "bias must hold n numbers, or n for each row of x");
  }
};

// The gradients of a linear layer: of x where it is wanted, of the weight and of the bias.
struct Gradients {
  Out of_x, of_weight, of_bias;
  bool wants_x;

  Gradients(const Linear& in, bool wants)
      : of_x(nullptr, "out", wants ? in.x.ndim() : 1, wants ? in.x.shape() : &kNone),
        of_weight(nullptr, "out", 2, in.weight.shape()),
        of_bias(nullptr, "out", 1, in.weight.shape()),
        wants_x(wants) {}

  void backward(const Linear& in, const float* grad) {
    const auto [rows, n, k] = std::tuple{in.rows, in.n, in.k};
    if (wants_x) {
      multiply({rows, k, n, {grad, n, 1}, {in.weight.data(), k, 1}, of_x.data(), k, false});
    }
    multiply({n, k, rows, {grad, 1, n}, {in.x.data(), k, 1}, of_weight.data(), k, false});
    std::fill_n(of_bias.data(), n, 0.0f);
    kernels().learn.add_columns(of_bias.data(), grad, rows, n);
  }

  // A tuple of these and perhaps one more.
  PyObject* finish(bool torch, Out* more = nullptr) {
    const Ref x = wants_x ? Ref::take(of_x.finish(torch)) : Ref::borrow(Py_None);
    const Ref weight = Ref::take(of_weight.finish(torch));
    const Ref bias = Ref::take(of_bias.finish(torch));
    if (more == nullptr) return PyTuple_Pack(3, x.get(), weight.get(), bias.get());
    const Ref last = Ref::take(more->finish(torch));
    return PyTuple_Pack(4, x.get(), weight.get(), bias.get(), last.get());
  }

 private:
  static constexpr npy_intp kNone = 0;
};

// x [..., k], weight [n, k], bias [n] or [..., n]
PyObject* linear(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("linear", nargs, 3);
    const Linear in(args[0], args[1]);
    const Floats bias(args[2], "bias");
    in.check_bias(bias);
    Out y = in.out();
    {
      const MaybeReleaseGil release(in.work_ns());
      in.forward(bias, y.data());
    }
    return y.finish(in.x.torch());
  });
}

// x, weight, grad [..., n], wants_x -> of_x or None, of_weight, of_bias
PyObject* linear_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("linear_backward", nargs, 4);
    const Linear in(args[0], args[1]);
    const Floats grad(args[2], "grad");
    check(grad.size() == in.rows * in.n, "grad must hold n numbers for each row of x");
    Gradients found(in, args[3] == Py_True);
    {
      const MaybeReleaseGil release(2 * in.work_ns());
      found.backward(in, grad.data());
    }
    return found.finish(in.x.torch());
  });
}

// x, weight, bias, scale [n] -> z = x weight' + bias, norm_silu(z, scale)
PyObject* layer(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("layer", nargs, 4);
    const Linear in(args[0], args[1]);
    const Floats bias(args[2], "bias"), scale(args[3], "scale");
    in.check_bias(bias);
    check(scale.size() == in.n, "scale must hold n numbers");
    Out z = in.out(), y = in.out();
    {
      const MaybeReleaseGil release(in.work_ns());
      in.forward(bias, z.data());
      kernels().world.norm_silu(z.data(), scale.data(), in.rows, in.n, y.data());
    }
    const Ref first = Ref::take(z.finish(in.x.torch()));
    const Ref second = Ref::take(y.finish(in.x.torch()));
    return PyTuple_Pack(2, first.get(), second.get());
  });
}

// x, weight, scale, z, grad [..., n], wants_x -> of_x or None, of_weight, of_bias, of_scale
PyObject* layer_backward(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("layer_backward", nargs, 6);
    const Linear in(args[0], args[1]);
    const Floats scale(args[2], "scale"), z(args[3], "z"), grad(args[4], "grad");
    check(scale.size() == in.n, "scale must hold n numbers");
    check(z.size() == in.rows * in.n, "z must hold n numbers for each row of x");
    check(grad.size() == z.size(), "grad must hold n numbers for each row of x");
    Gradients found(in, args[5] == Py_True);
    Out of_scale(nullptr, "out", 1, scale.shape());
    {
      const MaybeReleaseGil release(2 * in.work_ns());
      static thread_local std::vector<float> of_z;
      of_z.resize(z.size());
      std::fill_n(of_scale.data(), in.n, 0.0f);
      kernels().world.norm_silu_backward(z.data(), scale.data(), grad.data(), in.rows, in.n,
                                         of_z.data(), of_scale.data());
      found.backward(in, of_z.data());
    }
    return found.finish(in.x.torch(), &of_scale);
  });
}

PyMethodDef functions[] = {
    fast_function("linear", linear), fast_function("linear_backward", linear_backward),
    fast_function("layer", layer),   fast_function("layer_backward", layer_backward),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_world_layers(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
