// An argument of integers: any integer dtype, array-like or a single number.
#pragma once

#include <cstdint>
#include <optional>

#include "bind/arrays.hpp"

namespace sharpwave::bind {

class IndexArg {
 public:
  // Throws TypeError for anything but integers, and IndexError for numbers beyond int64, or below
  // `least` if that is given; 2**64 - 1 is -1.
  IndexArg(PyObject* object, const char* name, std::optional<std::int64_t> least = {}) {
    const Ref given = as_array(object, name);
    auto* numbers = reinterpret_cast<PyArrayObject*>(given.get());
    const int type = PyArray_TYPE(numbers);
    // An empty list has the dtype of floats.
    const bool is_nothing = PyArray_SIZE(numbers) == 0 && !PyTypeNum_ISCOMPLEX(type);
    if (!PyTypeNum_ISINTEGER(type) && !is_nothing) {
      const Ref text = Ref::take(PyObject_Str(reinterpret_cast<PyObject*>(PyArray_DESCR(numbers))));
      throw TypeError(std::string(name) + " must be integers, got dtype " +
                      PyUnicode_AsUTF8(text.get()));
    }
    if (PyTypeNum_ISINTEGER(type) && PyArray_ITEMSIZE(numbers) == 8 &&
        PyArray_ISCARRAY_RO(numbers)) {
      owner_ = Ref::borrow(given.get());  // unsigned numbers below 2**63 read the same
    } else {
      owner_ = Ref::take(PyArray_FromArray(numbers, PyArray_DescrFromType(NPY_INT64),
                                           NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
    }
    size_ = static_cast<std::size_t>(PyArray_SIZE(array()));
    for (std::size_t i = 0; PyTypeNum_ISUNSIGNED(type) && i < size(); ++i) {
      if (data()[i] < (least ? *least : 0)) {
        throw std::out_of_range(std::string(name) + " must be below 2**63");
      }
    }
    for (std::size_t i = 0; least && i < size(); ++i) {
      if (data()[i] >= *least) continue;
      throw std::out_of_range(std::string(name) + " must not be negative, got " +
                              std::to_string(data()[i]));
    }
  }

  const std::int64_t* data() const {
    return static_cast<const std::int64_t*>(PyArray_DATA(array()));
  }
  std::size_t size() const { return size_; }
  int ndim() const { return PyArray_NDIM(array()); }
  const npy_intp* shape() const { return PyArray_DIMS(array()); }

 private:
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(owner_.get()); }

  Ref owner_;
  std::size_t size_ = 0;
};

}  // namespace sharpwave::bind
