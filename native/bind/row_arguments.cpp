// The arguments of push and push_batch as typed memory (see row_plan.hpp).

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bind/index_arg.hpp"
#include "bind/row_plan.hpp"

namespace sharpwave::bind {
namespace {

[[noreturn]] void throw_cast(const Leaf& leaf, double value) {
  throw std::invalid_argument(leaf.name + " must fit " + name_of(leaf.dtype) + ", got " +
                              number_text(value));
}

[[noreturn]] void throw_shape(const Leaf& leaf, std::optional<std::size_t> rows,
                              PyArrayObject* array) {
  std::vector<npy_intp> expected = leaf.shape;
  if (rows) expected.insert(expected.begin(), static_cast<npy_intp>(*rows));
  throw std::invalid_argument(leaf.name + " must have shape " +
                              shape_text(static_cast<int>(expected.size()), expected.data()) +
                              ", got " + shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
}

void check_finite(const Leaf& leaf, const std::byte* data, std::size_t n) {
  if (!leaf.finite) return;
  const std::size_t bad = first_not_finite(leaf.dtype, data, n);
  if (bad < n) throw std::invalid_argument(leaf.name + " must be finite, got NaN or infinity");
}

// The object of this leaf inside its argument.
PyObject* descend(const Leaf& leaf, PyObject* object, std::vector<Ref>* kept) {
  for (const Ref& key : leaf.path) {
    PyObject* inner = nullptr;
    if (PyUnicode_Check(key.get()) ? PyMapping_Check(object) : PySequence_Check(object)) {
      inner = PyObject_GetItem(object, key.get());
    }
    if (inner == nullptr) {
      PyErr_Clear();
      throw std::invalid_argument(leaf.name + " is missing");
    }
    kept->emplace_back(inner);
    object = inner;
  }
  return object;
}

// Casts n items into memory of the call.
const std::byte* cast_items(const Leaf& leaf, DType from, const std::byte* source, std::size_t n,
                            Arena* arena) {
  std::byte* target = arena->take(n * item_size(leaf.dtype));
  CastError error{};
  if (leaf.flag && leaf.dtype != DType::boolean) {
    std::byte* flags = arena->take(n);
    if (!cast(from, source, DType::boolean, flags, n, &error)) throw_cast(leaf, error.value);
    cast(DType::boolean, flags, leaf.dtype, target, n, &error);
  } else if (!cast(from, source, leaf.dtype, target, n, &error)) {
    throw_cast(leaf, error.value);
  }
  check_finite(leaf, target, n);
  return target;
}

// A Python number for a field of one item; false when the object is something else.
bool prepare_scalar(const Leaf& leaf, PyObject* object, Arena* arena, Source* source) {
  if (PyFloat_Check(object)) {
    const double value = PyFloat_AS_DOUBLE(object);
    source->data =
        cast_items(leaf, DType::float64, reinterpret_cast<const std::byte*>(&value), 1, arena);
    return true;
  }
  if (PyArray_IsScalar(object, Float32)) {
    const float value = PyArrayScalar_VAL(object, Float32);
    source->data =
        cast_items(leaf, DType::float32, reinterpret_cast<const std::byte*>(&value), 1, arena);
    return true;
  }
  if (PyBool_Check(object) || PyArray_IsScalar(object, Bool)) {
    const bool value =
        PyBool_Check(object) ? object == Py_True : PyArrayScalar_VAL(object, Bool) != 0;
    source->data =
        cast_items(leaf, DType::boolean, reinterpret_cast<const std::byte*>(&value), 1, arena);
    return true;
  }
  if (PyLong_Check(object)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) {
      source->data =
          cast_items(leaf, DType::int64, reinterpret_cast<const std::byte*>(&value), 1, arena);
      return true;
    }
    const std::uint64_t large = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      throw std::invalid_argument(leaf.name + " must fit " + name_of(leaf.dtype) +
                                  ", got an integer beyond 64 bits");
    }
    source->data =
        cast_items(leaf, DType::uint64, reinterpret_cast<const std::byte*>(&large), 1, arena);
    return true;
  }
  return false;
}

bool shape_fits(const Leaf& leaf, PyArrayObject* array, std::optional<std::size_t> rows) {
  const int ndim = PyArray_NDIM(array);
  const auto size = static_cast<std::size_t>(PyArray_SIZE(array));
  if (size != leaf.items * rows.value_or(1)) return false;
  const auto field_ndim = static_cast<int>(leaf.shape.size());
  const int lead = rows ? 1 : 0;
  if (ndim == 1) return true;  // the flat form
  const npy_intp* dims = PyArray_DIMS(array);
  if (rows && (ndim == 0 || static_cast<std::size_t>(dims[0]) != *rows)) return false;
  if (leaf.items == 1) return true;
  return ndim == field_ndim + lead && std::equal(leaf.shape.begin(), leaf.shape.end(), dims + lead);
}

// An array-like as contiguous memory of the field's dtype.
void prepare_array(const Leaf& leaf, PyObject* object, std::optional<std::size_t> rows,
                   PushRows* push, Source* source) {
  PyArrayObject* array = nullptr;
  if (PyArray_Check(object)) {
    array = reinterpret_cast<PyArrayObject*>(object);
  } else {
    push->kept.push_back(as_array(object, leaf.name.c_str()));
    array = reinterpret_cast<PyArrayObject*>(push->kept.back().get());
  }
  if (!shape_fits(leaf, array, rows)) throw_shape(leaf, rows, array);
  if (!PyArray_ISCARRAY_RO(array)) {
    dtype_of_numpy(PyArray_TYPE(array), leaf.name.c_str());  // refuses what the copy cannot hold
    PyArray_Descr* native = PyArray_DescrFromType(PyArray_TYPE(array));
    push->kept.push_back(Ref::take(PyArray_FromArray(array, native, NPY_ARRAY_CARRAY_RO)));
    array = reinterpret_cast<PyArrayObject*>(push->kept.back().get());
  }
  const auto* data = static_cast<const std::byte*>(PyArray_DATA(array));
  const std::size_t n = leaf.items * rows.value_or(1);
  const int type = PyArray_TYPE(array);
  const bool same = type == leaf.numpy_type;
  if (same && (!leaf.flag || leaf.dtype == DType::boolean)) {
    check_finite(leaf, data, n);
    source->data = data;
  } else {
    source->data = cast_items(leaf, dtype_of_numpy(type, leaf.name.c_str()), data, n, &push->arena);
  }
  source->stride = leaf.items * item_size(leaf.dtype);
}

Source* allocate_sources(const RowPlan& plan, PushRows* rows) {
  if (plan.leaves.size() > rows->few.size()) {
    rows->many.resize(plan.leaves.size());
    rows->sources = rows->many.data();
    return rows->many.data();
  }
  rows->sources = rows->few.data();
  return rows->few.data();
}

float checked_priority(double value) {
  if (!std::isfinite(value) || value < 0.0) {
    throw std::invalid_argument("priority must be finite and not negative, got " +
                                number_text(value));
  }
  return static_cast<float>(std::min(value, double{std::numeric_limits<float>::max()}));
}

// The number of rows of a batch, read off the argument whose shape tells it without doubt.
std::size_t count_rows(const RowPlan& plan, PyObject* const* matched, PushRows* rows) {
  for (const bool scalar_field : {true, false}) {
    for (const Leaf& leaf : plan.leaves) {
      if ((leaf.items == 1) != scalar_field) continue;
      PyObject* object = descend(leaf, matched[leaf.argument], &rows->kept);
      Ref array = as_array(object, leaf.name.c_str());
      const auto size =
          static_cast<std::size_t>(PyArray_SIZE(reinterpret_cast<PyArrayObject*>(array.get())));
      if (size % leaf.items != 0) {
        throw_shape(leaf, std::nullopt, reinterpret_cast<PyArrayObject*>(array.get()));
      }
      return size / leaf.items;
    }
  }
  return 0;
}

void prepare_streams(const Replay& replay, PyObject* object, bool batch, PushRows* rows) {
  const std::size_t n_streams = replay.options().n_streams;
  const bool given = object != nullptr && object != Py_None;
  if (!given) {
    if (batch && rows->n % n_streams != 0) {
      throw std::invalid_argument(
          "push_batch() takes one row of each environment per step: expected a multiple of " +
          std::to_string(n_streams) + " rows, got " + std::to_string(rows->n) +
          "; pass streams= for other rows");
    }
    if (!batch && n_streams > 1) {
      throw std::invalid_argument(
          "push() needs the argument 'stream', the environment the step belongs to, from 0 to " +
          std::to_string(n_streams - 1));
    }
    return;
  }
  const IndexArg streams(object, batch ? "streams" : "stream");
  if (streams.size() != rows->n) {
    throw std::invalid_argument("streams must have length " + std::to_string(rows->n) + ", got " +
                                std::to_string(streams.size()));
  }
  auto* numbers =
      reinterpret_cast<std::uint32_t*>(rows->arena.take(rows->n * sizeof(std::uint32_t)));
  for (std::size_t i = 0; i < rows->n; ++i) {
    const std::int64_t stream = streams.data()[i];
    if (stream < 0 || static_cast<std::size_t>(stream) >= n_streams) {
      throw std::out_of_range(std::string(batch ? "streams" : "stream") + " must be from 0 to " +
                              std::to_string(n_streams - 1) + ", got " + std::to_string(stream));
    }
    numbers[i] = static_cast<std::uint32_t>(stream);
  }
  rows->streams = numbers;
}

}  // namespace

void prepare_one(const RowPlan& plan, const Replay& replay, PyObject* const* matched,
                 PushRows* rows) {
  Source* sources = allocate_sources(plan, rows);
  for (std::size_t i = 0; i < plan.leaves.size(); ++i) {
    const Leaf& leaf = plan.leaves[i];
    PyObject* object = matched[leaf.argument];
    if (!leaf.path.empty()) object = descend(leaf, object, &rows->kept);
    if (leaf.items == 1 && prepare_scalar(leaf, object, &rows->arena, &sources[i])) continue;
    prepare_array(leaf, object, std::nullopt, rows, &sources[i]);
  }
  if (plan.priority_argument >= 0) {
    PyObject* priority = matched[plan.priority_argument];
    if (priority != nullptr && priority != Py_None) {
      auto* value = reinterpret_cast<float*>(rows->arena.take(sizeof(float)));
      *value = checked_priority(as_double(priority, "priority"));
      rows->priorities = value;
    }
  }
  if (plan.stream_argument >= 0)
    prepare_streams(replay, matched[plan.stream_argument], false, rows);
}

void prepare_many(const RowPlan& plan, const Replay& replay, PyObject* const* matched,
                  PushRows* rows) {
  Source* sources = allocate_sources(plan, rows);
  rows->n = count_rows(plan, matched, rows);
  for (std::size_t i = 0; i < plan.leaves.size(); ++i) {
    const Leaf& leaf = plan.leaves[i];
    PyObject* object = descend(leaf, matched[leaf.argument], &rows->kept);
    prepare_array(leaf, object, rows->n, rows, &sources[i]);
  }
  if (plan.priority_argument >= 0) {
    PyObject* priorities = matched[plan.priority_argument];
    if (priorities != nullptr && priorities != Py_None) {
      const ArrayArg<double> given(priorities, "priorities");
      if (given.size() != rows->n) {
        throw std::invalid_argument("priorities must have length " + std::to_string(rows->n) +
                                    ", got " + std::to_string(given.size()));
      }
      auto* values = reinterpret_cast<float*>(rows->arena.take(rows->n * sizeof(float)));
      for (std::size_t i = 0; i < rows->n; ++i) values[i] = checked_priority(given.data()[i]);
      rows->priorities = values;
    }
  }
  if (plan.stream_argument >= 0) prepare_streams(replay, matched[plan.stream_argument], true, rows);
}

}  // namespace sharpwave::bind
