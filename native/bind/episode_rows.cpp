// EpisodeRows: storing steps and whole episodes, and the type itself.
#include "bind/episode_rows.hpp"

#include <nanobind/nanobind.h>

#include <mutex>

#include "bind/bindings.hpp"
#include "bind/episode_docs.hpp"

namespace nb = nanobind;

namespace sharpwave::bind {

EpisodeRows* checked_episodes(PyObject* self) {
  auto* rows = reinterpret_cast<EpisodeRows*>(self);
  if (rows->store == nullptr) {
    throw std::runtime_error(rows->why_closed == nullptr ? "the buffer is closed"
                                                         : as_utf8(rows->why_closed));
  }
  return rows;
}

EpisodeStore* writable(PyObject* self, Ref* engine) {
  EpisodeRows* rows = checked_episodes(self);
  if (!rows->store->is_writer()) {
    Ref::take(PyObject_CallMethod(self, "_open_for_writing", nullptr));
    rows = checked_episodes(self);
  }
  rows->store->check_writer();
  *engine = Ref::borrow(rows->engine);
  return rows->store;
}

void match_fields(const char* method, PyObject* const* values, PyObject* keywords, FieldCall* call,
                  FieldCall* more) {
  const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
    if (call->group.match(keyword, values[k], &call->values, &call->rows)) continue;
    if (more != nullptr && more->group.match(keyword, values[k], &more->values, &more->rows)) {
      continue;
    }
    throw_unknown_field(method, keyword, call->group, more == nullptr ? nullptr : &more->group);
  }
}

namespace {

void check_no_positional(const char* method, Py_ssize_t n_args) {
  if (n_args == 0) return;
  throw TypeError(std::string(method) + "() takes fields by name, got " + std::to_string(n_args) +
                  " positional arguments");
}

// With the GIL let go: an episode begins if none is open.
void begin_and_append(const EpisodeRows& rows, EpisodeStore* store, const Source* step) {
  Source meta[kMaxFields];
  for (std::size_t i = 0; i < rows.meta->size(); ++i) meta[i] = rows.meta->default_source(i);
  const ReleaseGil released;
  const std::lock_guard<std::mutex> lock(store->writer_mutex());
  if (store->n_lanes() > 0) throw std::runtime_error("a batch of episodes is open: store_batch()");
  if (!store->has_open()) store->begin(meta);
  store->append(1, step);
}

PyObject* store(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    check_no_positional("store", n_args);
    FieldCall call(*rows->fields);
    match_fields("store", args, keywords, &call);
    rows->fields->prepare_one(call.values, &call.rows);
    {
      const std::unique_lock<std::mutex> lock(store->writer_mutex(), std::try_to_lock);
      if (lock.owns_lock() && store->is_ready(1)) {
        store->append(1, call.rows.sources);
        return rows->fields->memory(call.values).release();
      }
    }
    begin_and_append(*rows, store, call.rows.sources);
    return rows->fields->memory(call.values).release();
  });
}

PyObject* store_episode(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                        PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    check_no_positional("store_episode", n_args);
    FieldCall steps(*rows->fields);
    FieldCall meta(*rows->meta);
    match_fields("store_episode", args, keywords, &steps, &meta);
    const std::ptrdiff_t n = rows->fields->count_rows(steps.values, &steps.rows);
    if (n < 0) throw TypeError("store_episode() needs at least one field of steps");
    rows->fields->prepare_rows(steps.values, static_cast<std::size_t>(n), &steps.rows);
    rows->meta->prepare_one(meta.values, &meta.rows);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->store_episode(static_cast<std::size_t>(n), steps.rows.sources, meta.rows.sources);
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
    check_no_positional("one_episode", n_args);
    FieldCall meta(*rows->meta);
    match_fields("one_episode", args, keywords, &meta);
    rows->meta->prepare_one(meta.values, &meta.rows);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->begin(meta.rows.sources);
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
    check_no_positional("one_episode", n_args);
    FieldCall meta(*rows->meta);
    match_fields("one_episode", args, keywords, &meta);
    rows->meta->prepare_one(meta.values, &meta.rows);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      for (std::size_t i = 0; i < rows->meta->size(); ++i) {
        if (meta.values.of_field[i] != nullptr) store->set_meta(i, meta.rows.sources[i].data);
      }
      store->end(EpisodeFlag::complete);
    }
    Py_RETURN_NONE;
  });
}

// Batches have the sizes of the fields, and rows those of the columns.
void check_sizes(const FieldGroup& fields, const std::vector<ColumnSpec>& columns) {
  bool same = fields.size() == columns.size();
  for (std::size_t i = 0; same && i < columns.size(); ++i) {
    same = fields.plan().leaves[i].bytes == columns[i].row_bytes;
  }
  if (!same) throw std::invalid_argument("columns must have rows of the size of their fields");
}

// _attach(engine, fields, meta): the store to work on; a text closes, and is the error from then
// on.
PyObject* attach(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    if (n_args != 3) throw TypeError("_attach() takes 3 arguments");
    auto* rows = reinterpret_cast<EpisodeRows*>(self);
    const bool some = !PyUnicode_Check(args[0]);
    if (some && !nb::isinstance<EpisodeStore>(nb::handle(args[0]))) {
      throw TypeError("engine must be an EpisodeEngine or a str");
    }
    if (rows->fields == nullptr) {
      auto fields = std::make_unique<FieldGroup>(args[1]);
      rows->meta = new FieldGroup(args[2]);
      rows->fields = fields.release();
    }
    EpisodeStore* store = some ? nb::inst_ptr<EpisodeStore>(nb::handle(args[0])) : nullptr;
    if (some) {
      check_sizes(*rows->fields, store->options().steps);
      check_sizes(*rows->meta, store->options().episodes);
    }
    const Ref old(rows->engine);
    const Ref old_text(rows->why_closed);
    rows->why_closed = some ? nullptr : Py_NewRef(args[0]);
    rows->engine = some ? Py_NewRef(args[0]) : nullptr;
    rows->store = store;
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
  Py_XDECREF(rows->why_closed);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_engine(PyObject* self, void*) {
  return guard([&]() -> PyObject* { return Py_NewRef(checked_episodes(self)->engine); });
}

PyObject* is_closed(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<EpisodeRows*>(self)->store == nullptr);
}

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;
PyMethodDef methods[] = {
    {"store", as_method(store), kFast, kStoreDoc},
    {"store_batch", as_method(store_batch), kFast, kStoreBatchDoc},
    {"store_meta_batch", as_method(store_meta_batch), kFast, kStoreMetaBatchDoc},
    {"store_episode", as_method(store_episode), kFast, kStoreEpisodeDoc},
    {"gather", as_method(gather_steps), kFast, kGatherStepsDoc},
    {"gather_ranges", as_method(gather_ranges), kFast, kGatherRangesDoc},
    {"_begin", as_method(begin), kFast, nullptr},
    {"_begin_batch", as_method(begin_batch), kFast, nullptr},
    {"_finish", as_method(finish), kFast, nullptr},
    {"_update", as_method(update_rows), METH_O, nullptr},
    {"_attach", as_method(attach), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"_engine", get_engine, nullptr, "The store behind the buffer.", nullptr},
    {"_is_closed", is_closed, nullptr, "Whether there is no store behind the buffer.", nullptr},
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
