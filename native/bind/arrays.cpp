#include "bind/arrays.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <new>

#include "bind/recycled_memory.hpp"
#include "core/disk/writer_lock.hpp"

namespace sharpwave::bind {

namespace {

// Raises an exception of sharpwave.errors.
void set_own_error(const char* type, const IoError& error, long owner) {
  const Ref module(PyImport_ImportModule("sharpwave.errors"));
  if (!module) return;
  const Ref kind(PyObject_GetAttrString(module.get(), type));
  if (!kind) return;
  const Ref value(error.code != 0
                      ? PyObject_CallFunction(kind.get(), "is", error.code, error.what())
                      : PyObject_CallFunction(kind.get(), "s", error.what()));
  if (!value) return;
  if (owner > 0) {
    const Ref number(PyLong_FromLong(owner));
    if (PyObject_SetAttrString(value.get(), "owner", number.get()) != 0) return;
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.get())), value.get());
}

// Names of fields may come from a file: control characters are spelled out for the terminal.
std::string printable(const char* text) {
  std::string shown;
  const auto spell = [&](unsigned char byte) {
    char spelled[8];
    std::snprintf(spelled, sizeof(spelled), "\\x%02x", byte);
    shown += spelled;
  };
  for (const char* at = text; *at != 0; ++at) {
    const auto byte = static_cast<unsigned char>(*at);
    const auto next = static_cast<unsigned char>(at[1]);
    const auto third = static_cast<unsigned char>(next == 0 ? 0 : at[2]);
    // Those that change the direction of text, too.
    const bool turns = byte == 0xe2 && ((next == 0x80 && third >= 0xa8 && third <= 0xae) ||
                                        (next == 0x81 && third >= 0xa6 && third <= 0xa9));
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      spell(next);
      ++at;
    } else if (turns) {
      for (const unsigned char part : {byte, next, third}) spell(part);
      at += 2;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      spell(byte);
    } else {
      shown += *at;
    }
  }
  return shown;
}

void set_error(PyObject* type, const std::exception& error) {
  PyErr_SetString(type, printable(error.what()).c_str());
}

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (const TypeError& error) {
    set_error(PyExc_TypeError, error);
  } catch (const LockedError& error) {
    set_own_error("FolderLockedError", error, error.owner);
  } catch (const IoError& error) {
    set_own_error("SharpwaveIOError", error, 0);
  } catch (const std::out_of_range& error) {
    set_error(PyExc_IndexError, error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::logic_error& error) {  // invalid_argument, domain_error, length_error
    set_error(PyExc_ValueError, error);
  } catch (const std::exception& error) {
    set_error(PyExc_RuntimeError, error);
  }
}

std::string shape_text(int ndim, const npy_intp* shape) {
  std::string text = "(";
  for (int i = 0; i < ndim; ++i) {
    text += std::to_string(shape[i]);
    if (ndim == 1 || i + 1 < ndim) text += ",";
    if (i + 1 < ndim) text += " ";
  }
  return text + ")";
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

namespace {

// Types that were found to be those of tensors: in practice torch.Tensor and torch.nn.Parameter.
PyTypeObject* tensor_types[2] = {};

void remember_tensor_type(PyTypeObject* type) {
  for (PyTypeObject*& known : tensor_types) {
    if (known != nullptr) continue;
    Py_INCREF(type);
    known = type;
    return;
  }
}

PyObject* interned(const char* text) {
  PyObject* name = PyUnicode_InternFromString(text);
  if (name == nullptr) throw PythonError();
  return name;
}

}  // namespace

bool is_torch(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyArray_Type) return false;
  if (type == tensor_types[0] || type == tensor_types[1]) return true;
  // A torch.Tensor answers to `__dlpack__` and its type's module is torch or torch.nn.parameter.
  if (!PyObject_HasAttrString(object, "__dlpack__") || PyArray_Check(object)) return false;
  const Ref module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
  if (!module || !PyUnicode_Check(module.get())) {
    PyErr_Clear();
    return false;
  }
  const char* text = PyUnicode_AsUTF8(module.get());
  if (text == nullptr || std::string(text).rfind("torch", 0) != 0) return false;
  remember_tensor_type(type);
  return true;
}

Ref to_torch(Ref array) {
  static PyObject* from_numpy = [] {
    const Ref torch = Ref::take(PyImport_ImportModule("torch"));
    return Ref::take(PyObject_GetAttrString(torch.get(), "from_numpy")).release();
  }();
  return Ref::take(PyObject_CallOneArg(from_numpy, array.get()));
}

namespace {

// What went wrong is told in other words. But Ctrl-C is not a fault of the argument.
void forget_error() {
  if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
  PyErr_Clear();
}

}  // namespace

Ref as_array(PyObject* object, const char* name, bool in_place) {
  if (PyArray_Check(object)) return Ref::borrow(object);
  if (is_torch(object)) {
    static PyObject *detach = interned("detach"), *to_numpy = interned("numpy");
    static PyObject* has_gradient = interned("requires_grad");
    const Ref is_needed = Ref::take(PyObject_GetAttr(object, has_gradient));
    const Ref detached = is_needed.get() == Py_False
                             ? Ref::borrow(object)
                             : Ref::take(PyObject_CallMethodNoArgs(object, detach));
    PyObject* viewed = PyObject_CallMethodNoArgs(detached.get(), to_numpy);  // the quicker way
    if (viewed != nullptr) return Ref(viewed);
    PyErr_Clear();
    const Ref numpy = Ref::take(PyImport_ImportModule("numpy"));
    viewed = PyObject_CallMethod(numpy.get(), "from_dlpack", "O", detached.get());
    if (viewed != nullptr) return Ref(viewed);
    forget_error();
    const Ref on_cpu = Ref::take(PyObject_GetAttrString(detached.get(), "is_cpu"));
    if (on_cpu.get() != Py_True) {
      throw TypeError(std::string(name) + " must be in CPU memory, got a tensor that is not");
    }
    // NumPy has no bfloat16: such a tensor is widened, which a caller who writes must not get.
    if (in_place) throw TypeError(std::string(name) + " must have a dtype that NumPy knows");
    const Ref widened = Ref::take(PyObject_CallMethod(detached.get(), "float", nullptr));
    viewed = PyObject_CallMethod(numpy.get(), "from_dlpack", "O", widened.get());
    if (viewed == nullptr) {
      forget_error();
      throw TypeError(std::string(name) + " must be a dense tensor, got one that is not");
    }
    return Ref(viewed);
  }
  PyObject* converted = PyArray_FromAny(object, nullptr, 0, 0, 0, nullptr);
  if (converted == nullptr ||
      PyArray_TYPE(reinterpret_cast<PyArrayObject*>(converted)) == NPY_OBJECT) {
    Py_XDECREF(converted);
    forget_error();
    throw TypeError(std::string(name) + " must be an array of numbers, got " +
                    Py_TYPE(object)->tp_name);
  }
  return Ref(converted);
}

// float64 as float32; a finite number beyond its range raises instead of becoming inf.
static Ref narrowed(PyArrayObject* given, const char* name) {
  const Ref wide = Ref::take(PyArray_FromArray(given, PyArray_DescrFromType(NPY_FLOAT64),
                                               NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  auto* source = reinterpret_cast<PyArrayObject*>(wide.get());
  Ref result =
      Ref::take(PyArray_SimpleNew(PyArray_NDIM(source), PyArray_DIMS(source), NPY_FLOAT32));
  const auto* from = static_cast<const double*>(PyArray_DATA(source));
  auto* to = static_cast<float*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(result.get())));
  for (npy_intp i = 0; i < PyArray_SIZE(source); ++i) {
    to[i] = static_cast<float>(from[i]);
    if (std::isinf(to[i]) && !std::isinf(from[i])) {
      throw std::invalid_argument(std::string(name) + " must fit float32, got " +
                                  number_text(from[i]));
    }
  }
  return result;
}

template <typename T>
ArrayArg<T>::ArrayArg(PyObject* object, const char* name) {
  if (PyArray_CheckExact(object)) {
    auto* given = reinterpret_cast<PyArrayObject*>(object);
    if (PyArray_TYPE(given) == numpy_type<T>() && PyArray_ISCARRAY_RO(given)) {
      owner_ = Ref::borrow(object);
      return;
    }
  }
  torch_ = is_torch(object);
  const Ref source = as_array(object, name);
  auto* given = reinterpret_cast<PyArrayObject*>(source.get());
  const int type = PyArray_TYPE(given);
  if ((!PyTypeNum_ISNUMBER(type) && !PyTypeNum_ISBOOL(type)) || PyTypeNum_ISCOMPLEX(type)) {
    throw TypeError(std::string(name) + " must be an array of real numbers, got dtype " +
                    PyArray_DESCR(given)->typeobj->tp_name);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (type == NPY_FLOAT64 || type == NPY_LONGDOUBLE) {
      owner_ = narrowed(given, name);
      return;
    }
  }
  owner_ = Ref::take(PyArray_FromArray(given, PyArray_DescrFromType(numpy_type<T>()),
                                       NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
}

Ref checked_output(PyObject* given, const std::string& name, int ndim, const npy_intp* shape,
                   int type) {
  if (!PyArray_Check(given) && !is_torch(given)) {  // a converted copy would be written in vain
    throw TypeError(name + " must be an array or tensor, got " + Py_TYPE(given)->tp_name);
  }
  Ref array = as_array(given, name.c_str(), true);
  auto* memory = reinterpret_cast<PyArrayObject*>(array.get());
  if (PyArray_NDIM(memory) != ndim || !PyArray_CompareLists(PyArray_DIMS(memory), shape, ndim)) {
    throw std::invalid_argument(name + " must have shape " + shape_text(ndim, shape) + ", got " +
                                shape_text(PyArray_NDIM(memory), PyArray_DIMS(memory)));
  }
  const bool same_type = PyArray_EquivTypenums(PyArray_TYPE(memory), type) != 0;
  if (!same_type || !PyArray_ISCARRAY(memory)) {
    const Ref descr = Ref::take(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
    const Ref text = Ref::take(PyObject_Str(descr.get()));
    throw std::invalid_argument(name + " must be a writable C-contiguous array of " +
                                PyUnicode_AsUTF8(text.get()));
  }
  return array;
}

template <typename T>
ArrayOut<T>::ArrayOut(PyObject* out, const char* name, int ndim, const npy_intp* shape) {
  if (out == nullptr || out == Py_None) {
    array_ = new_output_array(ndim, shape, numpy_type<T>());
    return;
  }
  if (!PyArray_Check(out) && !is_torch(out)) {
    throw TypeError(std::string(name) + " must be an array or a tensor, got " +
                    Py_TYPE(out)->tp_name);
  }
  array_ = as_array(out, name, true);
  auto* array = reinterpret_cast<PyArrayObject*>(array_.get());
  const bool same =
      PyArray_NDIM(array) == ndim && PyArray_CompareLists(PyArray_DIMS(array), shape, ndim);
  if (!same) {
    throw std::invalid_argument(std::string(name) + " must have shape " + shape_text(ndim, shape) +
                                ", got " + shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
  }
  if (PyArray_TYPE(array) != numpy_type<T>() || !PyArray_ISCARRAY(array)) {
    throw std::invalid_argument(std::string(name) + " must be a writable C-contiguous " +
                                (sizeof(T) == 4 ? "float32" : "float64") + " array");
  }
  given_ = Ref::borrow(out);
}

template <typename T>
PyObject* ArrayOut<T>::finish(bool torch) {
  if (given_) return given_.release();
  return torch ? to_torch(std::move(array_)).release() : array_.release();
}

template class ArrayArg<float>;
template class ArrayArg<double>;
template class ArrayOut<float>;
template class ArrayOut<std::int64_t>;
template class ArrayOut<double>;

void check_same_shape(PyArrayObject* array, const char* name, PyArrayObject* like,
                      const char* like_name) {
  const int ndim = PyArray_NDIM(like);
  if (PyArray_NDIM(array) == ndim &&
      PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(like), ndim)) {
    return;
  }
  throw std::invalid_argument(std::string(name) + " must have shape " +
                              shape_text(ndim, PyArray_DIMS(like)) + " like " + like_name +
                              ", got " + shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
}

std::string as_utf8(PyObject* text) {
  const char* utf8 = PyUnicode_AsUTF8(text);
  if (utf8 == nullptr) throw PythonError();
  return utf8;
}

double as_double(PyObject* object, const char* name) {
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw TypeError(std::string(name) + " must be a number, got " + Py_TYPE(object)->tp_name);
  }
  return value;
}

std::size_t as_size(PyObject* object, const char* name) {
  if (PyBool_Check(object) || !PyIndex_Check(object)) {
    throw TypeError(std::string(name) + " must be an integer, got " + Py_TYPE(object)->tp_name);
  }
  const Ref index = Ref::take(PyNumber_Index(object));
  const Py_ssize_t value = PyLong_AsSsize_t(index.get());
  if (value < 0) {
    PyErr_Clear();
    const Ref text = Ref::take(PyObject_Str(index.get()));
    throw std::invalid_argument(std::string(name) +
                                " must be an integer from 0 to 2**63 - 1, got " +
                                PyUnicode_AsUTF8(text.get()));
  }
  return static_cast<std::size_t>(value);
}

}  // namespace sharpwave::bind
