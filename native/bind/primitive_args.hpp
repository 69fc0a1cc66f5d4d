// Arguments that the primitives share: flags as bytes, pairs of outputs, dtype choice, ranges.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "bind/arrays.hpp"

namespace sharpwave::bind {

void check_nargs(const char* function, Py_ssize_t given, Py_ssize_t expected);

// True when every object is an array or tensor of float32.
bool all_float32(std::initializer_list<PyObject*> objects);

// True for a C-contiguous array of bool, uint8 or int8.
bool is_byte_array(PyObject* object);

// Flags as bytes, nonzero for true, of any numeric dtype; bool and 8-bit integers are not copied.
class FlagArg {
 public:
  FlagArg(PyObject* object, const char* name);

  const std::uint8_t* data() const {
    return static_cast<const std::uint8_t*>(PyArray_DATA(array()));
  }
  std::size_t size() const { return static_cast<std::size_t>(PyArray_SIZE(array())); }
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(owner_.get()); }

 private:
  Ref owner_;
};

// `dones`: flags when they come as bytes, otherwise numbers of type T (fractions are weights).
template <typename T>
class DonesArg {
 public:
  explicit DonesArg(PyObject* object) {
    if (is_byte_array(object))
      flags_.emplace(object, "dones");
    else
      numbers_.emplace(object, "dones");
  }

  const std::uint8_t* flags() const { return flags_ ? flags_->data() : nullptr; }
  const T* numbers() const { return numbers_ ? numbers_->data() : nullptr; }
  PyArrayObject* array() const { return flags_ ? flags_->array() : numbers_->array(); }

 private:
  std::optional<FlagArg> flags_;
  std::optional<ArrayArg<T>> numbers_;
};

// Two outputs of one shape: fresh, or the caller's `out=(first, second)`, which must not share
// memory with each other or with the inputs.
template <typename T>
class PairOut {
 public:
  PairOut(PyObject* out, int ndim, const npy_intp* shape,
          std::initializer_list<PyArrayObject*> inputs);

  T* first() const { return first_->data(); }
  T* second() const { return second_->data(); }
  // The tuple to return: `out` itself, or fresh arrays.
  PyObject* finish(bool torch);

 private:
  std::optional<ArrayOut<T>> first_, second_;
};

// Throws ValueError when `out` shares memory with an input.
void check_no_overlap(const void* out, std::size_t bytes,
                      std::initializer_list<PyArrayObject*> inputs);

// A number within [0, 1].
double as_fraction(PyObject* object, const char* name);

// A number that fits T: 1e40 as float32 raises ValueError, inf does not.
template <typename T>
T as_number(PyObject* object, const char* name);

}  // namespace sharpwave::bind
