// EpisodeRows: the type under EpisodeBuffer. Its methods are raw METH_FASTCALL ones: they run for
// every step and every batch.
#include <nanobind/nanobind.h>

#include <mutex>

#include "bind/bindings.hpp"
#include "bind/draw_arguments.hpp"
#include "bind/episode_arguments.hpp"
#include "bind/episode_docs.hpp"
#include "bind/index_arg.hpp"
#include "bind/recycled_memory.hpp"
#include "core/disk/episode_store.hpp"

namespace nb = nanobind;

namespace sharpwave::bind {
namespace {

struct EpisodeRows {
  PyObject_HEAD PyObject* engine;
  EpisodeStore* store;
  FieldGroup* fields;
  FieldGroup* meta;
};

EpisodeRows* checked(PyObject* self) {
  auto* rows = reinterpret_cast<EpisodeRows*>(self);
  if (rows->store == nullptr) throw std::runtime_error("the buffer is closed");
  return rows;
}

// The store to write to. A buffer that was opened for reading takes the lock at its first write.
// The reference keeps it alive while the GIL is free.
EpisodeStore* writable(PyObject* self, Ref* engine) {
  EpisodeRows* rows = checked(self);
  if (!rows->store->is_writer()) {
    Ref::take(PyObject_CallMethod(self, "_open_for_writing", nullptr));
    rows = checked(self);
  }
  *engine = Ref::borrow(rows->engine);
  return rows->store;
}

// Runs body(sources of default values of the fields of episodes).
template <typename Body>
void with_default_meta(const FieldGroup& meta, Body&& body) {
  Source sources[kMaxFields];
  for (std::size_t i = 0; i < meta.size(); ++i) sources[i] = meta.default_source(i);
  body(sources);
}

void match_all(const char* method, const FieldGroup& fields, const FieldGroup* more,
               PyObject* const* args, Py_ssize_t n_args, PyObject* keywords, FieldValues* values,
               PushRows* rows, FieldValues* more_values, PushRows* more_rows) {
  if (n_args != 0) {
    throw TypeError(std::string(method) + "() takes fields by name, got " + std::to_string(n_args) +
                    " positional arguments");
  }
  FieldGroup::clear(values, fields.size());
  if (more != nullptr) FieldGroup::clear(more_values, more->size());
  const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
    if (fields.match(keyword, args[k], values, rows)) continue;
    if (more != nullptr && more->match(keyword, args[k], more_values, more_rows)) continue;
    throw_unknown_field(method, keyword, fields, more);
  }
}

PyObject* store(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    FieldValues values;
    PushRows row;
    match_all("store", *rows->fields, nullptr, args, n_args, keywords, &values, &row, nullptr,
              nullptr);
    rows->fields->prepare_one(values, &row);
    {
      const std::unique_lock<std::mutex> lock(store->writer_mutex(), std::try_to_lock);
      if (lock.owns_lock() && store->has_open() && store->is_ready(1)) {
        store->append(1, row.sources);
        return rows->fields->memory(values).release();
      }
    }
    with_default_meta(*rows->meta, [&](const Source* meta) {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      if (!store->has_open()) store->begin(meta);
      store->append(1, row.sources);
    });
    return rows->fields->memory(values).release();
  });
}

// store_episode(**fields and fields of the episode)
PyObject* store_episode(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                        PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    FieldValues values;
    FieldValues meta_values;
    PushRows steps;
    PushRows meta;
    match_all("store_episode", *rows->fields, rows->meta, args, n_args, keywords, &values, &steps,
              &meta_values, &meta);
    const std::ptrdiff_t n = rows->fields->count_rows(values, &steps);
    if (n < 0) throw TypeError("store_episode() needs at least one field of steps");
    rows->fields->prepare_rows(values, static_cast<std::size_t>(n), &steps);
    rows->meta->prepare_one(meta_values, &meta);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->store_episode(static_cast<std::size_t>(n), steps.sources, meta.sources);
    }
    Py_RETURN_NONE;
  });
}

// _begin(**fields of the episode)
PyObject* begin(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    FieldValues values;
    PushRows meta;
    match_all("one_episode", *rows->meta, nullptr, args, n_args, keywords, &values, &meta, nullptr,
              nullptr);
    rows->meta->prepare_one(values, &meta);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->begin(meta.sources);
    }
    Py_RETURN_NONE;
  });
}

// _finish(**fields of the episode): writes those given and completes the open episode.
PyObject* finish(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    FieldValues values;
    PushRows meta;
    match_all("one_episode", *rows->meta, nullptr, args, n_args, keywords, &values, &meta, nullptr,
              nullptr);
    rows->meta->prepare_one(values, &meta);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      for (std::size_t i = 0; i < rows->meta->size(); ++i) {
        if (values.of_field[i] != nullptr) store->set_meta(i, meta.sources[i].data);
      }
      store->end(EpisodeFlag::complete);
    }
    Py_RETURN_NONE;
  });
}

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
  double cost(std::size_t n_rows) const {
    const double per_row =
        10.0 * static_cast<double>(columns_.size()) + 0.1 * static_cast<double>(row_bytes_);
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

PyObject* gather(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    const EpisodeRows* rows = checked(self);
    const GatherNames& n = gather_names();
    PyObject* const expected[] = {n.rows, n.fields, n.out};
    PyObject* given[3];
    match_fixed("gather", expected, 3, args, n_args, keywords, given);
    if (given[0] == nullptr) throw TypeError("gather() needs the argument 'rows'");
    const IndexArg wanted(given[0], "rows");
    const Gathered target(*rows->fields, given[1], given[2], wanted.ndim(), wanted.shape());
    const Ref engine = Ref::borrow(rows->engine);
    const EpisodeStore* store = rows->store;
    {
      const MaybeReleaseGil released(target.cost(wanted.size()));
      store->gather(wanted.data(), wanted.size(), target.columns().data(), target.columns().size(),
                    target.pointers());
    }
    return target.finish(*rows->fields, given[2]);
  });
}

PyObject* gather_ranges(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                        PyObject* keywords) {
  return guard([&]() -> PyObject* {
    const EpisodeRows* rows = checked(self);
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
    const Ref engine = Ref::borrow(rows->engine);
    const EpisodeStore* store = rows->store;
    {
      const MaybeReleaseGil released(target.cost(starts.size() * width));
      store->gather_ranges(starts.data(), lengths.data(), starts.size(), width,
                           target.columns().data(), target.columns().size(), target.pointers());
    }
    return target.finish(*rows->fields, given[4]);
  });
}

// _attach(engine, fields, meta): the store to work on; None closes.
PyObject* attach(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    if (n_args != 3) throw TypeError("_attach() takes 3 arguments");
    auto* rows = reinterpret_cast<EpisodeRows*>(self);
    const bool some = args[0] != Py_None;
    if (some && !nb::isinstance<EpisodeStore>(nb::handle(args[0]))) {
      throw TypeError("engine must be an EpisodeEngine");
    }
    if (rows->fields == nullptr) {
      auto fields = std::make_unique<FieldGroup>(args[1]);
      rows->meta = new FieldGroup(args[2]);
      rows->fields = fields.release();
    }
    const Ref old(rows->engine);
    rows->engine = some ? Py_NewRef(args[0]) : nullptr;
    rows->store = some ? nb::inst_ptr<EpisodeStore>(nb::handle(args[0])) : nullptr;
    Py_RETURN_NONE;
  });
}

PyObject* new_rows(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

void free_rows(PyObject* self) {
  auto* rows = reinterpret_cast<EpisodeRows*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete rows->fields;
  delete rows->meta;
  Py_XDECREF(rows->engine);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_engine(PyObject* self, void*) {
  return guard([&]() -> PyObject* { return Py_NewRef(checked(self)->engine); });
}

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"store", as_method(store), METH_FASTCALL | METH_KEYWORDS, kStoreDoc},
    {"store_episode", as_method(store_episode), METH_FASTCALL | METH_KEYWORDS, kStoreEpisodeDoc},
    {"gather", as_method(gather), METH_FASTCALL | METH_KEYWORDS, kGatherStepsDoc},
    {"gather_ranges", as_method(gather_ranges), METH_FASTCALL | METH_KEYWORDS, kGatherRangesDoc},
    {"_begin", as_method(begin), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_finish", as_method(finish), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_attach", as_method(attach), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyObject* is_closed(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<EpisodeRows*>(self)->store == nullptr);
}

PyGetSetDef getters[] = {
    {"_is_closed", is_closed, nullptr, "Whether there is no store behind the buffer.", nullptr},
    {"_engine", get_engine, nullptr, "The store behind the buffer.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_rows)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_rows)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, nullptr},
};
PyType_Spec spec = {"sharpwave._native.EpisodeRows", sizeof(EpisodeRows), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

void bind_episode_rows(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr || PyModule_AddObject(module, "EpisodeRows", type) != 0) {
    throw nb::python_error();
  }
}

}  // namespace sharpwave::bind
