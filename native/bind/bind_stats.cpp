// Running statistics and Polyak averages. Called by src/sharpwave/primitives/stats.py, which
// documents them.
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/isa/kernels.hpp"
#include "core/running_stats.hpp"

namespace sharpwave::bind {
namespace {

template <typename T>
const StatsKernelsOf<T>& stats_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().stats.f32;
  else
    return kernels().stats.f64;
}

// Writable float64 memory that RunningStats owns.
class State {
 public:
  State(PyObject* object, const char* name) {
    if (!PyArray_Check(object)) throw TypeError(std::string(name) + " must be an array");
    array_ = reinterpret_cast<PyArrayObject*>(object);
    if (PyArray_TYPE(array_) != NPY_FLOAT64 || !PyArray_ISCARRAY(array_)) {
      throw std::invalid_argument(std::string(name) +
                                  " must be a writable contiguous float64 array");
    }
  }

  double* data() const { return static_cast<double*>(PyArray_DATA(array_)); }
  std::size_t size() const { return static_cast<std::size_t>(PyArray_SIZE(array_)); }
  PyArrayObject* array() const { return array_; }

 private:
  PyArrayObject* array_;
};

// The number of samples in `batch`, whose last axes must be the shape of `mean`.
template <typename T>
std::size_t count_rows(const ArrayArg<T>& batch, const char* name, const State& mean) {
  const int dims = PyArray_NDIM(mean.array());
  const int lead = batch.ndim() - dims;
  if (lead < 0 || !PyArray_CompareLists(batch.shape() + lead, PyArray_DIMS(mean.array()), dims)) {
    throw std::invalid_argument(std::string(name) + " must have shape [..., *" +
                                shape_text(dims, PyArray_DIMS(mean.array())) + "], got " +
                                shape_text(batch.ndim(), batch.shape()));
  }
  return static_cast<std::size_t>(PyArray_MultiplyList(batch.shape(), lead));
}

// mean, m2, count, batch
template <typename T>
PyObject* update_of(PyObject* const* args) {
  const State mean(args[0], "mean");
  const State m2(args[1], "m2");
  const State count(args[2], "count");
  const ArrayArg<T> batch(args[3], "batch");
  check_same_shape(m2.array(), "m2", mean.array(), "mean");
  if (count.size() != 1) throw std::invalid_argument("count must hold one number");
  const std::size_t rows = count_rows(batch, "batch", mean);
  const std::size_t dims = mean.size();
  if (rows == 0 || dims == 0) Py_RETURN_NONE;
  std::vector<double> batch_moments(2 * dims);
  double* batch_mean = batch_moments.data();
  double* batch_m2 = batch_mean + dims;
  {
    const MaybeReleaseGil release(1.0 * static_cast<double>(batch.size()));
    stats_kernels<T>().column_moments(batch.data(), rows, dims, batch_mean, batch_m2);
  }
  for (const double moment : batch_moments) {
    if (!std::isfinite(moment)) {
      throw std::invalid_argument(
          "batch must be finite, got NaN or inf (or squares beyond float64)");
    }
  }
  merge_moments(mean.data(), m2.data(), *count.data(), batch_mean, batch_m2,
                static_cast<double>(rows), dims);
  *count.data() += static_cast<double>(rows);
  Py_RETURN_NONE;
}

PyObject* stats_update(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("stats_update", nargs, 4);
    return all_float32({args[3]}) ? update_of<float>(args) : update_of<double>(args);
  });
}

// mean, m2, count, other_mean, other_m2, other_count
PyObject* stats_merge(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&]() -> PyObject* {
    check_nargs("stats_merge", nargs, 6);
    const State mean(args[0], "mean"), m2(args[1], "m2"), count(args[2], "count");
    const State other_mean(args[3], "mean"), other_m2(args[4], "m2"), other_count(args[5], "count");
    check_same_shape(other_mean.array(), "other", mean.array(), "self");
    check_same_shape(m2.array(), "m2", mean.array(), "mean");
    check_same_shape(other_m2.array(), "m2", mean.array(), "mean");
    if (count.size() != 1 || other_count.size() != 1) {
      throw std::invalid_argument("count must hold one number");
    }
    const double added = *other_count.data();
    if (added > 0) {
      merge_moments(mean.data(), m2.data(), *count.data(), other_mean.data(), other_m2.data(),
                    added, mean.size());
      *count.data() += added;
    }
    Py_RETURN_NONE;
  });
}

// mean, m2, count, x, clip, epsilon
template <typename T>
PyObject* normalize_of(PyObject* const* args) {
  const State mean(args[0], "mean");
  const State m2(args[1], "m2");
  const State count(args[2], "count");
  const ArrayArg<T> x(args[3], "x");
  const double clip =
      args[4] == Py_None ? std::numeric_limits<double>::infinity() : as_double(args[4], "clip");
  const double epsilon = as_double(args[5], "epsilon");
  check_same_shape(m2.array(), "m2", mean.array(), "mean");
  if (count.size() != 1) throw std::invalid_argument("count must hold one number");
  if (!(clip > 0)) throw std::invalid_argument("clip must be positive, got " + number_text(clip));
  if (!(epsilon >= 0)) {
    throw std::invalid_argument("epsilon must not be negative, got " + number_text(epsilon));
  }
  const std::size_t rows = count_rows(x, "x", mean);
  const std::size_t dims = mean.size();
  // A copy, so that an update in another thread cannot change the numbers half-way.
  std::vector<double> moments(2 * dims);
  for (std::size_t j = 0; j < dims; ++j) {
    const double variance = *count.data() > 0 ? m2.data()[j] / *count.data() : 1.0;
    moments[j] = mean.data()[j];
    moments[dims + j] = 1.0 / std::sqrt(variance + epsilon);
  }
  ArrayOut<T> out(nullptr, "out", x.ndim(), x.shape());
  {
    const MaybeReleaseGil release(0.5 * static_cast<double>(x.size()));
    stats_kernels<T>().normalize(x.data(), rows, dims, moments.data(), moments.data() + dims, clip,
                                 out.data());
  }
  return out.finish(x.torch());
}

PyObject* stats_normalize(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("stats_normalize", nargs, 6);
    return all_float32({args[3]}) ? normalize_of<float>(args) : normalize_of<double>(args);
  });
}

// One array of a Polyak average, checked and ready to be changed in place.
class PolyakStep {
 public:
  virtual ~PolyakStep() = default;
  virtual void run(double tau) = 0;
};

template <typename T>
class PolyakStepOf : public PolyakStep {
 public:
  PolyakStepOf(Ref target, PyObject* source)
      : source_(source, "source"), given_(std::move(target)) {
    auto* array = reinterpret_cast<PyArrayObject*>(given_.get());
    check_same_shape(source_.array(), "source", array, "target");
    contiguous_ = Ref::take(PyArray_FromArray(array, PyArray_DescrFromType(numpy_type<T>()),
                                              NPY_ARRAY_CARRAY | NPY_ARRAY_WRITEBACKIFCOPY));
  }

  ~PolyakStepOf() override {
    if (contiguous_) PyArray_DiscardWritebackIfCopy(target());
  }

  void run(double tau) override {
    {
      const MaybeReleaseGil release(0.3 * static_cast<double>(source_.size()));
      stats_kernels<T>().polyak(static_cast<T*>(PyArray_DATA(target())), source_.data(),
                                source_.size(), static_cast<T>(tau));
    }
    if (PyArray_ResolveWritebackIfCopy(target()) < 0) throw PythonError();
  }

 private:
  PyArrayObject* target() const { return reinterpret_cast<PyArrayObject*>(contiguous_.get()); }

  ArrayArg<T> source_;
  Ref given_, contiguous_;
};

std::unique_ptr<PolyakStep> polyak_step(PyObject* target, PyObject* source) {
  Ref array = as_array(target, "target", true);
  auto* given = reinterpret_cast<PyArrayObject*>(array.get());
  if (!PyArray_ISWRITEABLE(given)) throw std::invalid_argument("target must be writable");
  if (PyArray_TYPE(given) == NPY_FLOAT32) {
    return std::make_unique<PolyakStepOf<float>>(std::move(array), source);
  }
  if (PyArray_TYPE(given) == NPY_FLOAT64) {
    return std::make_unique<PolyakStepOf<double>>(std::move(array), source);
  }
  throw TypeError(std::string("target must be float32 or float64, got dtype ") +
                  PyArray_DESCR(given)->typeobj->tp_name);
}

bool is_array(PyObject* object) { return PyArray_Check(object) || is_torch(object); }

// target, source, tau; both arrays, or both iterables of arrays
PyObject* polyak(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&]() -> PyObject* {
    check_nargs("polyak", nargs, 3);
    const double tau = as_fraction(args[2], "tau");
    std::vector<std::unique_ptr<PolyakStep>> steps;
    if (is_array(args[0])) {
      steps.push_back(polyak_step(args[0], args[1]));
    } else {
      const char* message = "target and source must be arrays or iterables of arrays";
      const Ref targets = Ref::take(PySequence_Fast(args[0], message));
      const Ref sources = Ref::take(PySequence_Fast(args[1], message));
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(targets.get());
      if (PySequence_Fast_GET_SIZE(sources.get()) != n) {
        throw std::invalid_argument("source must hold " + std::to_string(n) +
                                    " arrays like target, got " +
                                    std::to_string(PySequence_Fast_GET_SIZE(sources.get())));
      }
      for (Py_ssize_t i = 0; i < n; ++i) {
        PyObject* target = PySequence_Fast_GET_ITEM(targets.get(), i);
        if (!is_array(target)) {
          throw TypeError(std::string("target must hold arrays, got ") + Py_TYPE(target)->tp_name);
        }
        steps.push_back(polyak_step(target, PySequence_Fast_GET_ITEM(sources.get(), i)));
      }
    }
    for (const auto& step : steps) step->run(tau);
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    fast_function("stats_update", stats_update),
    fast_function("stats_merge", stats_merge),
    fast_function("stats_normalize", stats_normalize),
    fast_function("polyak", polyak),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_stats(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
