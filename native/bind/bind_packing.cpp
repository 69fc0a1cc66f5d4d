// Sequence packing. Called positionally by src/sharpwave/primitives/packing/__init__.py, which
// documents it.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "bind/recycled_memory.hpp"
#include "core/packing.hpp"

namespace sharpwave::bind {
namespace {

// Work per token of the packed layout, for the decision about the GIL.
constexpr double kTokenNs = 1.0;

template <typename T>
T* data_of(const Ref& array) {
  return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.get())));
}

Ref new_array(int type, std::initializer_list<std::size_t> shape) {
  npy_intp dims[2];
  int ndim = 0;
  for (const std::size_t size : shape) dims[ndim++] = static_cast<npy_intp>(size);
  return new_output_array(ndim, dims, type);
}

Ref int64_array(const std::vector<std::int64_t>& values) {
  Ref array = new_array(NPY_INT64, {values.size()});
  std::copy(values.begin(), values.end(), data_of<std::int64_t>(array));
  return array;
}

std::vector<std::int64_t> as_lengths(PyObject* object) {
  const Ref source = as_array(object, "lengths");
  auto* array = reinterpret_cast<PyArrayObject*>(source.get());
  if (PyArray_NDIM(array) != 1) {
    throw std::invalid_argument("lengths must have shape [n], got " +
                                shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
  }
  if (PyArray_SIZE(array) > 0 && !PyTypeNum_ISINTEGER(PyArray_TYPE(array))) {
    throw TypeError(std::string("lengths must be integers, got dtype ") +
                    PyArray_DESCR(array)->typeobj->tp_name);
  }
  const Ref cast = Ref::take(PyArray_FromArray(array, PyArray_DescrFromType(NPY_INT64),
                                               NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  const auto* data = data_of<const std::int64_t>(cast);
  return {data, data + PyArray_SIZE(array)};
}

// Refuses a layout that memory cannot index; NumPy reports one that merely does not fit.
void check_layout(std::size_t n_bins, std::size_t max_len) {
  if (n_bins > 0 && max_len > (std::size_t{1} << 58) / n_bins) {
    throw std::invalid_argument("max_len must leave the packed rows addressable, got " +
                                std::to_string(max_len) + " for " + std::to_string(n_bins) +
                                " rows");
  }
}

// lengths, max_len -> n_bins, sequence, bin, offset
PyObject* plan_packing_raw(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("plan_packing", nargs, 2);
    const std::vector<std::int64_t> lengths = as_lengths(args[0]);
    const PackingPlan plan = plan_packing(lengths, as_size(args[1], "max_len"));
    const Ref n_bins = Ref::take(PyLong_FromSize_t(plan.n_bins));
    const Ref sequence = int64_array(plan.sequence);
    const Ref bin = int64_array(plan.bin);
    const Ref offset = int64_array(plan.offset);
    return PyTuple_Pack(4, n_bins.get(), sequence.get(), bin.get(), offset.get());
  });
}

// lengths, max_len -> packed, masks, positions
PyObject* pack_lengths(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("pack_lengths", nargs, 2);
    const bool torch = is_torch(args[0]);
    const std::vector<std::int64_t> lengths = as_lengths(args[0]);
    const std::size_t max_len = as_size(args[1], "max_len");
    const PackingPlan plan = plan_packing(lengths, max_len);
    check_layout(plan.n_bins, max_len);
    Ref packed = new_array(NPY_INT64, {plan.n_bins, max_len});
    Ref masks = new_array(NPY_BOOL, {plan.n_bins, max_len});
    Ref positions = new_array(NPY_INT64, {plan.n_bins, max_len});
    {
      const MaybeReleaseGil release(kTokenNs * static_cast<double>(plan.n_bins * max_len));
      std::vector<std::int64_t> starts(lengths.size());
      std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), std::int64_t{0});
      auto* source = data_of<std::int64_t>(packed);
      auto* mask = data_of<std::uint8_t>(masks);
      auto* position = data_of<std::int64_t>(positions);
      const std::size_t n = plan.sequence.size();
      for (std::size_t k = 0; k < n; ++k) {
        const auto index = static_cast<std::size_t>(plan.sequence[k]);
        const auto length = static_cast<std::size_t>(lengths[index]);
        const std::size_t row = static_cast<std::size_t>(plan.bin[k]) * max_len;
        const std::size_t at = row + static_cast<std::size_t>(plan.offset[k]);
        std::iota(source + at, source + at + length, starts[index]);
        std::iota(position + at, position + at + length, std::int64_t{0});
        std::memset(mask + at, 1, length);
        if (k + 1 == n || plan.bin[k + 1] != plan.bin[k]) {
          const std::size_t end = row + max_len;
          std::fill(source + at + length, source + end, std::int64_t{-1});
          std::fill(position + at + length, position + end, std::int64_t{0});
          std::memset(mask + at + length, 0, end - at - length);
        }
      }
    }
    if (torch) {
      packed = to_torch(std::move(packed));
      masks = to_torch(std::move(masks));
      positions = to_torch(std::move(positions));
    }
    return PyTuple_Pack(3, packed.get(), masks.get(), positions.get());
  });
}

// The token arrays as contiguous memory of one integer dtype: their own if they share one, int64
// otherwise.
class TokenArrays {
 public:
  explicit TokenArrays(PyObject* sequences) {
    const Ref items =
        Ref::take(PySequence_Fast(sequences, "sequences must be a list of token arrays"));
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
    arrays_.reserve(static_cast<std::size_t>(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
      if (i == 0) torch_ = is_torch(item);
      add(as_array(item, "sequences"), i);
    }
    for (Ref& array : arrays_) {
      auto* given = reinterpret_cast<PyArrayObject*>(array.get());
      if (PyArray_TYPE(given) == type_ && PyArray_ISCARRAY_RO(given)) continue;
      array = Ref::take(PyArray_FromArray(given, PyArray_DescrFromType(type_),
                                          NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
    }
  }

  bool torch() const { return torch_; }
  int type() const { return type_; }
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  const char* data(std::size_t i) const { return data_of<const char>(arrays_[i]); }

 private:
  void add(Ref array, Py_ssize_t index) {
    auto* given = reinterpret_cast<PyArrayObject*>(array.get());
    const std::string name = "sequences[" + std::to_string(index) + "]";
    if (PyArray_NDIM(given) != 1) {
      throw std::invalid_argument(name + " must have shape [length], got " +
                                  shape_text(PyArray_NDIM(given), PyArray_DIMS(given)));
    }
    const npy_intp size = PyArray_SIZE(given);
    const bool integers = PyTypeNum_ISINTEGER(PyArray_TYPE(given));
    if (size > 0 && !integers) {
      throw TypeError(name + " must be integers, got dtype " +
                      PyArray_DESCR(given)->typeobj->tp_name);
    }
    const int type = integers ? PyArray_TYPE(given) : NPY_INT64;
    type_ = arrays_.empty() || type_ == type ? type : NPY_INT64;
    lengths_.push_back(size);
    arrays_.push_back(std::move(array));
  }

  std::vector<Ref> arrays_;
  std::vector<std::int64_t> lengths_;
  int type_ = NPY_INT64;
  bool torch_ = false;
};

// cu_seqlens[k] is where sequence k of the layout starts when padding is left out.
Ref cumulative_lengths(const PackingPlan& plan, const std::vector<std::int64_t>& lengths) {
  Ref array = new_array(NPY_INT32, {plan.sequence.size() + 1});
  auto* cumulative = data_of<std::int32_t>(array);
  std::int64_t total = 0;
  cumulative[0] = 0;
  for (std::size_t k = 0; k < plan.sequence.size(); ++k) {
    total += lengths[static_cast<std::size_t>(plan.sequence[k])];
    if (total > std::numeric_limits<std::int32_t>::max()) {
      throw std::invalid_argument("sequences must hold fewer than 2**31 tokens in all");
    }
    cumulative[k + 1] = static_cast<std::int32_t>(total);
  }
  return array;
}

// `count` tokens of `token_bytes` each, all equal to `token`.
void fill_tokens(char* to, std::size_t count, const char* token, std::size_t token_bytes) {
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * token_bytes, token, token_bytes);
}

// sequences, max_len, pad_id -> the fields of PackedSequences
PyObject* pack_tokens(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("pack_tokens", nargs, 3);
    const TokenArrays tokens(args[0]);
    const std::size_t max_len = as_size(args[1], "max_len");
    const PackingPlan plan = plan_packing(tokens.lengths(), max_len);
    check_layout(plan.n_bins, max_len);
    const std::vector<std::int64_t>& lengths = tokens.lengths();
    const Ref pad = new_array(tokens.type(), {1});
    if (PyArray_SETITEM(reinterpret_cast<PyArrayObject*>(pad.get()), data_of<char>(pad), args[2]) !=
        0) {
      PyErr_Clear();
      throw std::invalid_argument("pad_id must be an integer that fits the dtype of the sequences");
    }
    Ref fields[8] = {
        new_array(tokens.type(), {plan.n_bins, max_len}),
        new_array(NPY_BOOL, {plan.n_bins, max_len}),
        new_array(NPY_INT32, {plan.n_bins, max_len}),
        new_array(NPY_INT32, {plan.n_bins, max_len}),
        int64_array(plan.sequence),
        int64_array(plan.bin),
        int64_array(plan.offset),
        cumulative_lengths(plan, lengths),
    };
    {
      const MaybeReleaseGil release(kTokenNs * static_cast<double>(plan.n_bins * max_len));
      auto* ids = data_of<char>(fields[0]);
      auto* mask = data_of<std::uint8_t>(fields[1]);
      auto* position = data_of<std::int32_t>(fields[2]);
      auto* segment = data_of<std::int32_t>(fields[3]);
      const std::size_t token_bytes =
          static_cast<std::size_t>(PyArray_ITEMSIZE(reinterpret_cast<PyArrayObject*>(pad.get())));
      const std::size_t n = plan.sequence.size();
      std::int32_t segment_id = 0;
      for (std::size_t k = 0; k < n; ++k) {
        const auto index = static_cast<std::size_t>(plan.sequence[k]);
        const auto length = static_cast<std::size_t>(lengths[index]);
        const std::size_t row = static_cast<std::size_t>(plan.bin[k]) * max_len;
        const std::size_t at = row + static_cast<std::size_t>(plan.offset[k]);
        segment_id = plan.offset[k] == 0 ? 1 : segment_id + 1;
        if (length > 0)
          std::memcpy(ids + at * token_bytes, tokens.data(index), length * token_bytes);
        std::memset(mask + at, 1, length);
        std::iota(position + at, position + at + length, 0);
        std::fill(segment + at, segment + at + length, segment_id);
        if (k + 1 == n || plan.bin[k + 1] != plan.bin[k]) {
          const std::size_t rest = max_len - (at - row) - length;
          fill_tokens(ids + (at + length) * token_bytes, rest, data_of<char>(pad), token_bytes);
          std::memset(mask + at + length, 0, rest);
          std::fill_n(position + at + length, rest, 0);
          std::fill_n(segment + at + length, rest, 0);
        }
      }
    }
    const Ref result = Ref::take(PyTuple_New(8));
    for (Py_ssize_t i = 0; i < 8; ++i) {
      Ref field = tokens.torch() ? to_torch(std::move(fields[i])) : std::move(fields[i]);
      PyTuple_SET_ITEM(result.get(), i, field.release());
    }
    return Py_NewRef(result.get());
  });
}

PyMethodDef functions[] = {
    fast_function("plan_packing", plan_packing_raw),
    fast_function("pack_lengths", pack_lengths),
    fast_function("pack_tokens", pack_tokens),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_packing(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
