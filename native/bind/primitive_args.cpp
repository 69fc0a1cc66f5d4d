#include "bind/primitive_args.hpp"

#include <cmath>

namespace sharpwave::bind {

void check_nargs(const char* function, Py_ssize_t given, Py_ssize_t expected) {
  if (given == expected) return;
  throw TypeError(std::string(function) + " takes " + std::to_string(expected) +
                  " arguments, got " + std::to_string(given));
}

static bool is_float32(PyObject* object) {
  if (PyArray_Check(object)) {
    return PyArray_TYPE(reinterpret_cast<PyArrayObject*>(object)) == NPY_FLOAT32;
  }
  if (!is_torch(object)) return false;
  const Ref dtype = Ref::take(PyObject_GetAttrString(object, "dtype"));
  const Ref text = Ref::take(PyObject_Str(dtype.get()));
  return PyUnicode_CompareWithASCIIString(text.get(), "torch.float32") == 0;
}

bool all_float32(std::initializer_list<PyObject*> objects) {
  for (PyObject* object : objects) {
    if (!is_float32(object)) return false;
  }
  return true;
}

bool is_byte_array(PyObject* object) {
  if (!PyArray_Check(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  const int type = PyArray_TYPE(array);
  return (type == NPY_BOOL || type == NPY_UINT8 || type == NPY_INT8) &&
         PyArray_IS_C_CONTIGUOUS(array);
}

FlagArg::FlagArg(PyObject* object, const char* name) {
  if (is_byte_array(object)) {
    owner_ = Ref::borrow(object);
    return;
  }
  Ref source = as_array(object, name);
  if (is_byte_array(source.get())) {
    owner_ = std::move(source);
    return;
  }
  auto* given = reinterpret_cast<PyArrayObject*>(source.get());
  const int type = PyArray_TYPE(given);
  if ((!PyTypeNum_ISNUMBER(type) && !PyTypeNum_ISBOOL(type)) || PyTypeNum_ISCOMPLEX(type)) {
    throw TypeError(std::string(name) + " must be an array of flags, got dtype " +
                    PyArray_DESCR(given)->typeobj->tp_name);
  }
  owner_ = Ref::take(PyArray_FromArray(given, PyArray_DescrFromType(NPY_BOOL),
                                       NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
}

void check_no_overlap(const void* out, std::size_t bytes,
                      std::initializer_list<PyArrayObject*> inputs) {
  const auto begin = reinterpret_cast<std::uintptr_t>(out);
  for (PyArrayObject* input : inputs) {
    if (input == nullptr) continue;
    const auto start = reinterpret_cast<std::uintptr_t>(PyArray_DATA(input));
    const auto size = static_cast<std::size_t>(PyArray_NBYTES(input));
    if (begin < start + size && start < begin + bytes) {
      throw std::invalid_argument("out must not share memory with an input");
    }
  }
}

template <typename T>
PairOut<T>::PairOut(PyObject* out, int ndim, const npy_intp* shape,
                    std::initializer_list<PyArrayObject*> inputs) {
  if (out == Py_None) {
    first_.emplace(nullptr, "out", ndim, shape);
    second_.emplace(nullptr, "out", ndim, shape);
    return;
  }
  if (!PyTuple_Check(out) || PyTuple_GET_SIZE(out) != 2) {
    throw TypeError(std::string("out must be a tuple of two arrays, got ") + Py_TYPE(out)->tp_name);
  }
  first_.emplace(PyTuple_GET_ITEM(out, 0), "out[0]", ndim, shape);
  second_.emplace(PyTuple_GET_ITEM(out, 1), "out[1]", ndim, shape);
  const std::size_t bytes = static_cast<std::size_t>(PyArray_MultiplyList(shape, ndim)) * sizeof(T);
  check_no_overlap(first(), bytes, inputs);
  check_no_overlap(second(), bytes, inputs);
  const auto a = reinterpret_cast<std::uintptr_t>(first());
  const auto b = reinterpret_cast<std::uintptr_t>(second());
  if (a < b + bytes && b < a + bytes) {
    throw std::invalid_argument("out[0] and out[1] must not share memory");
  }
}

template <typename T>
PyObject* PairOut<T>::finish(bool torch) {
  const Ref first(first_->finish(torch));
  const Ref second(second_->finish(torch));
  return PyTuple_Pack(2, first.get(), second.get());
}

template class PairOut<float>;
template class PairOut<double>;

double as_fraction(PyObject* object, const char* name) {
  const double value = as_double(object, name);
  if (!(value >= 0.0 && value <= 1.0)) {
    throw std::invalid_argument(std::string(name) + " must be between 0 and 1, got " +
                                number_text(value));
  }
  return value;
}

template <typename T>
T as_number(PyObject* object, const char* name) {
  const double value = as_double(object, name);
  const T result = static_cast<T>(value);
  if (std::isinf(result) && !std::isinf(value)) {
    throw std::invalid_argument(std::string(name) + " must fit float32, got " + number_text(value));
  }
  return result;
}

template float as_number<float>(PyObject*, const char*);
template double as_number<double>(PyObject*, const char*);

}  // namespace sharpwave::bind
