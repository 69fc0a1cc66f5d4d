// The arguments of push and push_batch as typed memory (see row_plan.hpp).

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "bind/index_arg.hpp"
#include "bind/row_plan.hpp"

namespace sharpwave::bind {
namespace {

// The rows an argument should hold: one without an axis of its own, or a batch of them.
struct RowCount {
  std::size_t n;
  bool batch;
};
constexpr RowCount kOneRow{1, false};

[[noreturn]] void throw_cast(const Leaf& leaf, double value) {
  throw std::invalid_argument(leaf.name + " must fit " + name_of(leaf.dtype) + ", got " +
                              number_text(value));
}

[[noreturn]] void throw_shape(const Leaf& leaf, RowCount rows, PyArrayObject* array) {
  std::vector<npy_intp> expected = leaf.shape;
  if (rows.batch) expected.insert(expected.begin(), static_cast<npy_intp>(rows.n));
  throw std::invalid_argument(leaf.name + " must have shape " +
                              shape_text(static_cast<int>(expected.size()), expected.data()) +
                              ", got " + shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
}

void check_finite(const Leaf& leaf, const std::byte* data, std::size_t n) {
  if (!leaf.finite) return;
  const std::size_t bad = first_not_finite(leaf.dtype, data, n);
  if (bad < n) throw std::invalid_argument(leaf.name + " must be finite, got NaN or infinity");
}

}  // namespace

PyObject* descend(const Leaf& leaf, PyObject* object, std::vector<Ref>* kept) {
  for (std::size_t level = 0; level < leaf.path.size(); ++level) {
    const Ref& key = leaf.path[level];
    PyObject* inner = nullptr;
    if (PyUnicode_Check(key.get()) ? PyMapping_Check(object) : PySequence_Check(object)) {
      inner = PyObject_GetItem(object, key.get());
    }
    if (inner == nullptr) {
      PyErr_Clear();
      throw std::invalid_argument(leaf.name + " is missing");
    }
    if (PyObject_Size(object) > leaf.widths[level]) {  // missing ones show themselves
      PyErr_Clear();
      Py_DECREF(inner);
      throw std::invalid_argument("what holds " + leaf.name + " must have " +
                                  std::to_string(leaf.widths[level]) + " entries and no others");
    }
    kept->emplace_back(inner);
    object = inner;
  }
  return object;
}

namespace {

// Casts n items into memory of the call.
const std::byte* cast_items(const Leaf& leaf, DType from, const std::byte* source, std::size_t n,
                            Arena* arena) {
  std::byte* target = arena->take(n * item_size(leaf.dtype));
  CastError error{};
  if (leaf.flag && item_size(leaf.dtype) == 1) {  // 0 and 1 have the same bits in all of these
    if (!cast(from, source, DType::boolean, target, n, &error)) throw_cast(leaf, error.value);
  } else if (leaf.flag) {
    std::byte* flags = arena->take(n);
    if (!cast(from, source, DType::boolean, flags, n, &error)) throw_cast(leaf, error.value);
    cast(DType::boolean, flags, leaf.dtype, target, n, &error);
  } else if (!cast(from, source, leaf.dtype, target, n, &error)) {
    throw_cast(leaf, error.value);
  }
  check_finite(leaf, target, n);
  return target;
}

// A Python or NumPy number for a field of one item; false when the object is something else.
bool prepare_scalar(const Leaf& leaf, PyObject* object, Arena* arena, Source* source) {
  const auto take = [&](DType from, const auto& value) {
    source->data = cast_items(leaf, from, reinterpret_cast<const std::byte*>(&value), 1, arena);
    return true;
  };
  if (PyFloat_Check(object)) return take(DType::float64, PyFloat_AS_DOUBLE(object));
  if (PyArray_IsScalar(object, Bool)) {
    source->data = leaf.truth[PyArrayScalar_VAL(object, Bool) != 0];
    return true;
  }
  if (PyArray_IsScalar(object, Float32)) {
    return take(DType::float32, PyArrayScalar_VAL(object, Float32));
  }
  if (!PyLong_Check(object)) return false;
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow == 0) return take(DType::int64, value);
  const std::uint64_t large = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred()) {
    PyErr_Clear();
    throw std::invalid_argument(leaf.name + " must fit " + name_of(leaf.dtype) +
                                ", got an integer beyond 64 bits");
  }
  return take(DType::uint64, large);
}

bool shape_fits(const Leaf& leaf, PyArrayObject* array, RowCount rows) {
  const int ndim = PyArray_NDIM(array);
  if (ndim == 1) {  // the flat form, and the commonest
    return static_cast<std::size_t>(PyArray_DIM(array, 0)) == leaf.items * rows.n;
  }
  const auto size = static_cast<std::size_t>(PyArray_SIZE(array));
  if (size != leaf.items * rows.n) return false;
  const auto field_ndim = static_cast<int>(leaf.shape.size());
  const int lead = rows.batch ? 1 : 0;
  const npy_intp* dims = PyArray_DIMS(array);
  if (rows.batch && (ndim == 0 || static_cast<std::size_t>(dims[0]) != rows.n)) return false;
  if (leaf.items == 1) return true;
  return ndim == field_ndim + lead && std::equal(leaf.shape.begin(), leaf.shape.end(), dims + lead);
}

// Whether the items of a flag are 0 or 1 already.
bool are_flags(const Leaf& leaf, const std::byte* data, std::size_t n) {
  if (leaf.dtype == DType::boolean) return true;
  if (leaf.bytes != 1) return false;
  std::uint64_t all = 0;
  std::size_t i = 0;
  for (; i + sizeof all <= n; i += sizeof all) {
    std::uint64_t eight;
    std::memcpy(&eight, data + i, sizeof eight);
    all |= eight;
  }
  for (; i < n; ++i) all |= static_cast<std::uint64_t>(data[i]);
  return (all & ~std::uint64_t{0x0101010101010101}) == 0;
}

// An array-like as contiguous memory of the field's dtype.
void prepare_array(const Leaf& leaf, PyObject* object, RowCount rows, PushRows* push,
                   Source* source) {
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
  const std::size_t n = leaf.items * rows.n;
  const int type = PyArray_TYPE(array);
  // Truth values are bytes of 0 and 1, as flags are.
  const bool truth = leaf.flag && leaf.bytes == 1 && type == NPY_BOOL;
  const bool same = type == leaf.numpy_type || truth;
  if (same && (!leaf.flag || are_flags(leaf, data, n))) {
    check_finite(leaf, data, n);
    source->data = data;
  } else {
    source->data = cast_items(leaf, dtype_of_numpy(type, leaf.name.c_str()), data, n, &push->arena);
  }
  source->stride = leaf.bytes;
}

float checked_priority(double value) {
  if (!std::isfinite(value) || value < 0.0) {
    throw std::invalid_argument("priority must be finite and not negative, got " +
                                number_text(value));
  }
  if (value > double{std::numeric_limits<float>::max()}) {
    throw std::invalid_argument("priority must fit float32, got " + number_text(value));
  }
  return static_cast<float>(value);
}

std::size_t count_rows(const RowPlan& plan, PyObject* const* matched, PushRows* rows) {
  const Leaf& leaf = plan.leaves[plan.count_leaf];
  PyObject* object = descend(leaf, matched[leaf.argument], &rows->kept);
  if (!PyArray_Check(object)) {
    rows->kept.push_back(as_array(object, leaf.name.c_str()));
    object = rows->kept.back().get();
  }
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  const auto size = static_cast<std::size_t>(PyArray_NDIM(array) == 1 ? PyArray_DIM(array, 0)
                                                                      : PyArray_SIZE(array));
  if (leaf.items == 1) return size;
  if (size % leaf.items != 0) throw_shape(leaf, kOneRow, array);
  return size / leaf.items;
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

// The commonest values, taken without a call: a flat contiguous array of the field's dtype, True or
// False, and a float for a float32 field.
inline bool prepare_common(const Leaf& leaf, PyObject* object, Arena* arena, Source* source) {
  if (leaf.items == 1) {
    if (object == Py_False || object == Py_True) {
      source->data = leaf.truth[object == Py_True];
      return true;
    }
    if (!PyFloat_CheckExact(object) || leaf.dtype != DType::float32) return false;
    const double value = PyFloat_AS_DOUBLE(object);
    if (!(std::abs(value) <= std::numeric_limits<float>::max())) return false;
    auto* narrow = reinterpret_cast<float*>(arena->take(sizeof(float)));
    *narrow = static_cast<float>(value);
    source->data = reinterpret_cast<const std::byte*>(narrow);
    return true;
  }
  if (!PyArray_CheckExact(object) || !leaf.direct) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  constexpr int kPlain = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
  if (PyArray_DESCR(array) != leaf.descr || PyArray_NDIM(array) != 1 ||
      static_cast<std::size_t>(PyArray_DIM(array, 0)) != leaf.items ||
      (PyArray_FLAGS(array) & kPlain) != kPlain) {
    return false;
  }
  source->data = static_cast<const std::byte*>(PyArray_DATA(array));
  return true;
}

inline void prepare_leaf(const Leaf& leaf, PyObject* object, PushRows* rows, Source* source) {
  source->stride = 0;
  if (prepare_common(leaf, object, &rows->arena, source)) return;
  if (leaf.items == 1 && prepare_scalar(leaf, object, &rows->arena, source)) return;
  prepare_array(leaf, object, kOneRow, rows, source);
}

}  // namespace

void prepare_field(const Leaf& leaf, PyObject* object, PushRows* rows, Source* source) {
  prepare_leaf(leaf, object, rows, source);
}

void prepare_field_rows(const Leaf& leaf, PyObject* object, std::size_t n, PushRows* rows,
                        Source* source) {
  prepare_array(leaf, object, {n, true}, rows, source);
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

void prepare_one(const RowPlan& plan, const Replay& replay, PyObject* const* matched,
                 PushRows* rows) {
  Source* sources = allocate_sources(plan, rows);
  for (std::size_t i = 0; i < plan.leaves.size(); ++i) {
    const Leaf& leaf = plan.leaves[i];
    PyObject* object = matched[leaf.argument];
    if (!leaf.path.empty()) object = descend(leaf, object, &rows->kept);
    prepare_leaf(leaf, object, rows, &sources[i]);
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
    prepare_array(leaf, object, {rows->n, true}, rows, &sources[i]);
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
