#include "bind/learner_memory.hpp"

#include <algorithm>

namespace sharpwave::bind {

FloatMemory::FloatMemory(PyObject* given, const std::string& name, std::size_t n) {
  const auto shape = static_cast<npy_intp>(n);
  array_ = checked_output(given, name, 1, &shape, NPY_FLOAT32);
}

FloatMemory::FloatMemory(PyObject* given, const std::string& name)
    : array_(checked_output(given, name, 0, nullptr, NPY_FLOAT32)) {}

OptimizedMemory::OptimizedMemory(PyObject* given, const std::string& name, std::size_t n) {
  constexpr Py_ssize_t kItems = 9;
  if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != kItems) {
    throw TypeError(name +
                    " must be (data, grad, exp_avg, exp_avg_sq, steps, lr, beta1, beta2, eps)");
  }
  const auto item = [&](Py_ssize_t i) { return PyTuple_GET_ITEM(given, i); };
  data_.emplace(item(0), name + " data", n);
  grad_.emplace(item(1), name + " grad", n);
  mean_.emplace(item(2), name + " exp_avg", n);
  square_.emplace(item(3), name + " exp_avg_sq", n);
  steps_.emplace(item(4), name + " steps");
  lr_.emplace(item(5), name + " lr");
  beta1_ = as_double(item(6), "beta1");
  beta2_ = as_double(item(7), "beta2");
  eps_ = as_double(item(8), "eps");
}

ReplayArguments::ReplayArguments(PyObject* obs, PyObject* rewards, PyObject* next_obs,
                                 PyObject* discounts, PyObject* weights, std::size_t n_inputs)
    : obs_(obs, n_inputs) {
  arrays_.reserve(4);
  rows_.n = obs_.n();
  if (rows_.n == 0) throw std::invalid_argument("obs must have rows, got none");
  rows_.obs = obs_.data();
  rows_.rewards = column(rewards, "rewards");
  rows_.discounts = column(discounts, "discounts");
  if (weights != Py_None) rows_.weights = column(weights, "weights");
  const ArrayArg<float>& next = arrays_.emplace_back(next_obs, "next_obs");
  check_shape("next_obs", next.array(), {rows_.n, n_inputs});
  rows_.next_obs = next.data();
}

const float* ReplayArguments::column(PyObject* given, const char* name) {
  const ArrayArg<float>& array = arrays_.emplace_back(given, name);
  check_shape(name, array.array(), {rows_.n});
  return array.data();
}

ObsArgument::ObsArgument(PyObject* given, std::size_t n_inputs) : array_(given, "obs") {
  if (array_.ndim() != 2 || static_cast<std::size_t>(array_.dim(1)) != n_inputs) {
    throw std::invalid_argument("obs must have shape (n, " + std::to_string(n_inputs) + "), got " +
                                shape_text(array_.ndim(), array_.shape()));
  }
}

void check_sizes(const char* name, const std::vector<std::size_t>& sizes) {
  constexpr std::size_t kMost = 1 << 24;  // integers that float32 can hold
  for (const std::size_t size : sizes) {
    if (size < 1 || size > kMost) {
      throw std::invalid_argument(std::string(name) + " must hold sizes from 1 to 2**24, got " +
                                  std::to_string(size));
    }
  }
}

void check_shape(const char* name, PyArrayObject* array, std::initializer_list<std::size_t> shape) {
  std::vector<npy_intp> wanted(shape.begin(), shape.end());
  const int ndim = static_cast<int>(wanted.size());
  if (PyArray_NDIM(array) != ndim ||
      !PyArray_CompareLists(PyArray_DIMS(array), wanted.data(), ndim)) {
    throw std::invalid_argument(std::string(name) + " must have shape " +
                                shape_text(ndim, wanted.data()) + ", got " +
                                shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
  }
}

PyObject* numbers(std::initializer_list<double> values) {
  const auto n = static_cast<npy_intp>(values.size());
  ArrayOut<double> out(nullptr, "out", 1, &n);
  std::copy(values.begin(), values.end(), out.data());
  return out.finish();
}

PyObject* with_errors(std::initializer_list<double> metrics, ArrayOut<float>* errors) {
  const Ref first = Ref::take(numbers(metrics)), second = Ref::take(errors->finish());
  return PyTuple_Pack(2, first.get(), second.get());
}

}  // namespace sharpwave::bind
