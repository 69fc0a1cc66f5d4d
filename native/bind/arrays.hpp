// The border between Python objects and typed memory: owned references, array arguments that name
// themselves in errors, fresh outputs, and the translation of C++ exceptions.
//
// The functions here use the NumPy C-API directly: a typed nanobind argument costs over 100 ns an
// array, several times the work of a small call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "bind/numpy_api.hpp"

namespace sharpwave::bind {

// A Python exception is already set; unwinds to guard().
struct PythonError : std::exception {};

// TypeError with this message.
struct TypeError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }

  static Ref borrow(PyObject* object) { return Ref(Py_XNewRef(object)); }
  // Takes the result of a C-API call; throws if it failed.
  static Ref take(PyObject* result) {
    if (result == nullptr) throw PythonError();
    return Ref(result);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Sets the Python exception that stands for the C++ exception in flight.
void set_python_error() noexcept;

// Runs `body`, which returns a new PyObject*, and turns exceptions into Python ones.
template <typename Body>
PyObject* guard(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

template <typename T>
constexpr int numpy_type();
template <>
constexpr int numpy_type<float>() {
  return NPY_FLOAT32;
}
template <>
constexpr int numpy_type<double>() {
  return NPY_FLOAT64;
}
template <>
constexpr int numpy_type<std::int64_t>() {
  return NPY_INT64;
}
template <>
constexpr int numpy_type<std::uint64_t>() {
  return NPY_UINT64;
}
template <>
constexpr int numpy_type<std::uint8_t>() {
  return NPY_UINT8;
}

// Any array-like as a NumPy array of whatever dtype and strides: arrays pass through, torch CPU
// tensors and other DLPack producers are viewed without a copy, the rest (lists, scalars) is
// converted. `in_place`: the memory must be the object's own.
Ref as_array(PyObject* object, const char* name, bool in_place = false);

// True for a torch.Tensor (torch is never imported for the question).
bool is_torch(PyObject* object);

// The array as a torch tensor over the same memory.
Ref to_torch(Ref array);

// An argument as C-contiguous memory of type T, copied only when it is not that already. A value
// that does not fit T (1e40 into float32) raises ValueError.
template <typename T>
class ArrayArg {
 public:
  ArrayArg(PyObject* object, const char* name);

  const T* data() const { return static_cast<const T*>(PyArray_DATA(array())); }
  std::size_t size() const { return static_cast<std::size_t>(PyArray_SIZE(array())); }
  int ndim() const { return PyArray_NDIM(array()); }
  npy_intp dim(int axis) const { return PyArray_DIM(array(), axis); }
  const npy_intp* shape() const { return PyArray_DIMS(array()); }
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(owner_.get()); }
  bool torch() const { return torch_; }

 private:
  Ref owner_;
  bool torch_ = false;
};

// A fresh array, or the caller's `out` after a check of dtype, shape, contiguity and writability.
// `out` may be null or None. A torch `out` is written through.
template <typename T>
class ArrayOut {
 public:
  ArrayOut(PyObject* out, const char* name, int ndim, const npy_intp* shape);

  T* data() const {
    return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array_.get())));
  }
  // The object to return: the caller's own `out`, or the fresh array (a torch tensor when asked).
  PyObject* finish(bool torch = false);

 private:
  Ref array_;
  Ref given_;
};

// The caller's array or tensor as a NumPy view of its memory, after a check of dtype, shape,
// contiguity and writability.
Ref checked_output(PyObject* given, const std::string& name, int ndim, const npy_intp* shape,
                   int type);

// "(3, 4)"
std::string shape_text(int ndim, const npy_intp* shape);

// "1e+40"
std::string number_text(double value);

// Throws ValueError "<name> must have shape <expected> like <like>, got <actual>" unless the shapes
// agree.
void check_same_shape(PyArrayObject* array, const char* name, PyArrayObject* like,
                      const char* like_name);

// The text of a str; throws for lone surrogates.
std::string as_utf8(PyObject* text);
double as_double(PyObject* object, const char* name);
// A non-negative integer (Python int or anything with __index__, bool excluded).
std::size_t as_size(PyObject* object, const char* name);

// Releases the GIL for the scope.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() { PyEval_RestoreThread(state_); }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

// Releases the GIL for the scope when `work_ns`, the estimated work, is worth it (20 us).
class MaybeReleaseGil {
 public:
  explicit MaybeReleaseGil(double work_ns)
      : state_(work_ns > 20e3 ? PyEval_SaveThread() : nullptr) {}
  ~MaybeReleaseGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  MaybeReleaseGil(const MaybeReleaseGil&) = delete;
  MaybeReleaseGil& operator=(const MaybeReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace sharpwave::bind
