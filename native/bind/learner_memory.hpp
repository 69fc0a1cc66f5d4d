// What the learners of replay take from Python: memory that both sides see, and rows of a batch.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/arrays.hpp"
#include "core/learn/mlp.hpp"
#include "core/learn/optimizer.hpp"
#include "core/learn/replay_rows.hpp"

namespace sharpwave::bind {

namespace nb = nanobind;

// Runs `body` and lets its exceptions, Python's among them, pass through nanobind.
template <typename Body>
nb::object passing_errors(Body&& body) {
  PyObject* result = guard(std::forward<Body>(body));
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

// Writable float32 memory of Python's, held while this lives.
class FloatMemory {
 public:
  FloatMemory(PyObject* given, const std::string& name, std::size_t n);
  // A single number.
  FloatMemory(PyObject* given, const std::string& name);

  float* data() const {
    return static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get())));
  }

 private:
  Ref array_;
};

// Parameters, their gradient and the state of Adam: (data, grad, exp_avg, exp_avg_sq, steps, lr,
// beta1, beta2, eps). Of a target network, which nothing optimizes, the first alone.
class OptimizedMemory {
 public:
  OptimizedMemory(PyObject* given, const std::string& name, std::size_t n);

  float* data() const { return data_->data(); }
  float* grad() const { return grad_->data(); }
  // Takes the learning rate as it is now.
  Adam adam() const {
    return {{mean_->data(), square_->data(), steps_->data()},
            static_cast<double>(*lr_->data()),
            beta1_,
            beta2_,
            eps_};
  }

 private:
  std::optional<FloatMemory> data_, grad_, mean_, square_, steps_, lr_;
  double beta1_, beta2_, eps_;
};

// What computes on memory that it keeps: without the GIL, for one caller at a time.
template <typename Core>
class Exclusive {
 public:
  template <typename Form, typename... Memory>
  Exclusive(Form&& form, PyObject* first, Memory... rest)
      : core_(std::forward<Form>(form), first, rest...) {}
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;

  // What does not change.
  const Core& core() const { return core_; }

  template <typename Body>
  void use(Body&& body) {
    const ReleaseGil release;
    const std::lock_guard lock(mutex_);
    body(&core_);
  }

 private:
  Core core_;
  std::mutex mutex_;
};

// Observations [n, n_inputs] of some call.
class ObsArgument {
 public:
  ObsArgument(PyObject* given, std::size_t n_inputs);

  const float* data() const { return array_.data(); }
  std::size_t n() const { return static_cast<std::size_t>(array_.dim(0)); }

 private:
  ArrayArg<float> array_;
};

// The arrays of a batch while native code reads them.
class ReplayArguments {
 public:
  // Throws ValueError where a shape does not fit.
  ReplayArguments(PyObject* obs, PyObject* rewards, PyObject* next_obs, PyObject* discounts,
                  PyObject* weights, std::size_t n_inputs);

  const ReplayRows& rows() const { return rows_; }

 private:
  const float* column(PyObject* given, const char* name);

  ObsArgument obs_;
  std::vector<ArrayArg<float>> arrays_;
  ReplayRows rows_;
};

void check_sizes(const char* name, const std::vector<std::size_t>& sizes);
// Throws ValueError "<name> must have shape <expected>, got <actual>" unless it has.
void check_shape(const char* name, PyArrayObject* array, std::initializer_list<std::size_t> shape);
// A new array of numbers.
PyObject* numbers(std::initializer_list<double> values);
// The metrics of a step and the errors [n] of its rows.
PyObject* with_errors(std::initializer_list<double> metrics, ArrayOut<float>* errors);

}  // namespace sharpwave::bind
