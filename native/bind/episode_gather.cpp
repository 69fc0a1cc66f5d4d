// EpisodeRows: steps by row number, and runs of them.
#include "bind/draw_arguments.hpp"
#include "bind/episode_rows.hpp"
#include "bind/index_arg.hpp"
#include "bind/recycled_memory.hpp"

namespace sharpwave::bind {
namespace {

// The arrays of gather and gather_ranges: fresh ones or the caller's.
class Gathered {
 public:
  // `ndim` and `lead` are the axes before those of the fields.
  Gathered(const FieldGroup& group, PyObject* fields, PyObject* out, int ndim,
           const npy_intp* lead) {
    choose(group, fields);
    if (is_given(out) && !PyDict_Check(out)) {
      throw TypeError(std::string("out must be a dict of arrays, got ") + Py_TYPE(out)->tp_name);
    }
    for (const std::size_t field : columns_) {
      const Leaf& leaf = group.plan().leaves[field];
      npy_intp shape[NPY_MAXDIMS];
      int dims = 0;
      if (ndim + static_cast<int>(leaf.shape.size()) > NPY_MAXDIMS) {
        throw std::invalid_argument("rows must have fewer axes");
      }
      for (int i = 0; i < ndim; ++i) shape[dims++] = lead[i];
      for (const npy_intp dim : leaf.shape) shape[dims++] = dim;
      arrays_.push_back(is_given(out) ? given(group, field, out, dims, shape)
                                      : new_output_array(dims, shape, leaf.numpy_type));
      pointers_.push_back(static_cast<std::byte*>(
          PyArray_DATA(reinterpret_cast<PyArrayObject*>(arrays_.back().get()))));
      row_bytes_ += leaf.bytes;
    }
  }

  const std::vector<std::size_t>& columns() const { return columns_; }
  std::byte* const* pointers() const { return pointers_.data(); }
  // Pages that are not in memory make it longer than a copy would take.
  double cost(std::size_t n_rows) const {
    const double per_row =
        30.0 * static_cast<double>(columns_.size()) + 0.3 * static_cast<double>(row_bytes_);
    return per_row * static_cast<double>(n_rows);
  }
  PyObject* finish(const FieldGroup& group, PyObject* out) const {
    if (is_given(out)) return Py_NewRef(out);
    Ref dict = Ref::take(PyDict_New());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (PyDict_SetItem(dict.get(), group.name(columns_[i]), arrays_[i].get()) != 0) {
        throw PythonError();
      }
    }
    return dict.release();
  }

 private:
  void choose(const FieldGroup& group, PyObject* fields) {
    if (!is_given(fields)) {
      for (std::size_t i = 0; i < group.size(); ++i) columns_.push_back(i);
      return;
    }
    if (PyUnicode_Check(fields)) throw TypeError("fields must be a sequence of names, got a str");
    const Ref list = Ref::take(PySequence_Fast(fields, "fields must be a sequence of names"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
      PyObject* name = PySequence_Fast_GET_ITEM(list.get(), i);
      const int field = group.find(name);
      if (field < 0) {
        const Ref text = Ref::take(PyObject_Repr(name));
        throw std::invalid_argument("fields must name fields of steps, got " + as_utf8(text.get()));
      }
      columns_.push_back(static_cast<std::size_t>(field));
    }
  }
  static Ref given(const FieldGroup& group, std::size_t field, PyObject* out, int ndim,
                   const npy_intp* shape) {
    const Leaf& leaf = group.plan().leaves[field];
    PyObject* array = PyDict_GetItemWithError(out, group.name(field));
    if (array == nullptr) {
      if (PyErr_Occurred()) throw PythonError();
      throw std::invalid_argument("out must have the field '" + as_utf8(group.name(field)) + "'");
    }
    return checked_output(array, "out[\"" + as_utf8(group.name(field)) + "\"]", ndim, shape,
                          leaf.numpy_type);
  }

  std::vector<std::size_t> columns_;
  std::vector<Ref> arrays_;
  std::vector<std::byte*> pointers_;
  std::size_t row_bytes_ = 0;
};

// Copies rows; has the ones that are compressed brought into memory first. `copy` returns the
// blocks that are not in the store it is given.
template <typename Copy>
void copy_rows(PyObject* self, double cost, Copy&& copy) {
  constexpr double kLong = 1e9;
  // Asked for again: reading the arguments may have run code that closed the buffer.
  const EpisodeRows* rows = checked_episodes(self);
  const Ref engine = Ref::borrow(rows->engine);
  const EpisodeStore* store = rows->store;
  while (true) {
    std::vector<CodedBlock> absent;
    {
      const MaybeReleaseGil released(store->is_moving() ? kLong : cost);
      absent = copy(*store);
    }
    if (absent.empty()) return;
    const Ref blocks = Ref::take(PyList_New(0));
    for (const CodedBlock& block : absent) {
      const Ref place = Ref::take(Py_BuildValue("nKL", static_cast<Py_ssize_t>(block.column),
                                                static_cast<unsigned long long>(block.chunk),
                                                static_cast<long long>(block.block)));
      if (PyList_Append(blocks.get(), place.get()) != 0) throw PythonError();
    }
    Ref::take(PyObject_CallMethod(self, "_decompress", "OO", engine.get(), blocks.get()));
  }
}

struct GatherNames {
  PyObject* rows = PyUnicode_InternFromString("rows");
  PyObject* starts = PyUnicode_InternFromString("starts");
  PyObject* lengths = PyUnicode_InternFromString("lengths");
  PyObject* width = PyUnicode_InternFromString("width");
  PyObject* fields = PyUnicode_InternFromString("fields");
  PyObject* out = PyUnicode_InternFromString("out");
};
const GatherNames& gather_names() {
  static const GatherNames made;
  return made;
}

}  // namespace

PyObject* gather_steps(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                       PyObject* keywords) {
  return guard([&]() -> PyObject* {
    const EpisodeRows* rows = checked_episodes(self);
    const GatherNames& n = gather_names();
    PyObject* const expected[] = {n.rows, n.fields, n.out};
    PyObject* given[3];
    match_fixed("gather", expected, 3, args, n_args, keywords, given);
    if (given[0] == nullptr) throw TypeError("gather() needs the argument 'rows'");
    const IndexArg wanted(given[0], "rows");
    const Gathered target(*rows->fields, given[1], given[2], wanted.ndim(), wanted.shape());
    copy_rows(self, target.cost(wanted.size()), [&](const EpisodeStore& store) {
      return store.gather(wanted.data(), wanted.size(), target.columns().data(),
                          target.columns().size(), target.pointers());
    });
    return target.finish(*rows->fields, given[2]);
  });
}

PyObject* gather_ranges(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                        PyObject* keywords) {
  return guard([&]() -> PyObject* {
    const EpisodeRows* rows = checked_episodes(self);
    const GatherNames& n = gather_names();
    PyObject* const expected[] = {n.starts, n.lengths, n.width, n.fields, n.out};
    PyObject* given[5];
    match_fixed("gather_ranges", expected, 5, args, n_args, keywords, given);
    if (given[0] == nullptr || given[1] == nullptr || given[2] == nullptr) {
      throw TypeError("gather_ranges() needs the arguments 'starts', 'lengths' and 'width'");
    }
    const IndexArg starts(given[0], "starts");
    const IndexArg lengths(given[1], "lengths");
    if (lengths.size() != starts.size()) {
      throw std::invalid_argument("lengths must have length " + std::to_string(starts.size()) +
                                  " like starts, got " + std::to_string(lengths.size()));
    }
    const std::size_t width = as_size(given[2], "width");
    const npy_intp lead[] = {static_cast<npy_intp>(starts.size()), static_cast<npy_intp>(width)};
    const Gathered target(*rows->fields, given[3], given[4], 2, lead);
    copy_rows(self, target.cost(starts.size() * width), [&](const EpisodeStore& store) {
      return store.gather_ranges(starts.data(), lengths.data(), starts.size(), width,
                                 target.columns().data(), target.columns().size(),
                                 target.pointers());
    });
    return target.finish(*rows->fields, given[4]);
  });
}

}  // namespace sharpwave::bind
