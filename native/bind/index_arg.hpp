// An argument of integers: any integer dtype, array-like or a single number.
#pragma once

#include <cstdint>

#include "bind/arrays.hpp"

namespace sharpwave::bind {

class IndexArg {
 public:
  // Throws TypeError for anything but integers, and IndexError for numbers beyond int64.
  IndexArg(PyObject* object, const char* name) {
    const Ref given = as_array(object, name);
    auto* array = reinterpret_cast<PyArrayObject*>(given.get());
    const int type = PyArray_TYPE(array);
    if (!PyTypeNum_ISINTEGER(type) && PyArray_SIZE(array) > 0) {
      const Ref text = Ref::take(PyObject_Str(reinterpret_cast<PyObject*>(PyArray_DESCR(array))));
      throw TypeError(std::string(name) + " must be integers, got dtype " +
                      PyUnicode_AsUTF8(text.get()));
    }
    owner_ = Ref::take(PyArray_FromArray(array, PyArray_DescrFromType(NPY_INT64),
                                         NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
    for (std::size_t i = 0; PyTypeNum_ISUNSIGNED(type) && i < size(); ++i) {
      if (data()[i] < 0) throw std::out_of_range(std::string(name) + " must be below 2**63");
    }
  }

  const std::int64_t* data() const {
    return static_cast<const std::int64_t*>(PyArray_DATA(array()));
  }
  std::size_t size() const { return static_cast<std::size_t>(PyArray_SIZE(array())); }

 private:
  PyArrayObject* array() const { return reinterpret_cast<PyArrayObject*>(owner_.get()); }

  Ref owner_;
};

}  // namespace sharpwave::bind
