// EpisodeRows: episodes side by side, and rows written over.
#include <cstring>
#include <mutex>
#include <optional>

#include "bind/episode_rows.hpp"
#include "bind/index_arg.hpp"

namespace sharpwave::bind {
namespace {

// The number of episodes: of the open batch, or what the first value says.
std::size_t count_lanes(const char* method, const EpisodeStore& store, FieldCall* call) {
  if (store.n_lanes() > 0) return store.n_lanes();
  const std::ptrdiff_t n = call->group.count_rows(call->values, &call->rows);
  if (n < 0) throw TypeError(std::string(method) + "() needs at least one field");
  return static_cast<std::size_t>(n);
}

// Opens a batch with default values if none is open; the writer's mutex is held.
void ensure_lanes(EpisodeStore* store, std::size_t n, const Source* meta) {
  if (store->n_lanes() == 0) store->begin_lanes(n, meta);
  if (store->n_lanes() != n) {
    throw std::invalid_argument("a batch must have " + std::to_string(store->n_lanes()) +
                                " episodes like the open one, got " + std::to_string(n));
  }
}

void default_sources(const FieldGroup& group, Source* sources) {
  for (std::size_t i = 0; i < group.size(); ++i) sources[i] = group.default_source(i);
}

// Which episodes a step belongs to: all, or those that `object` marks.
std::vector<std::uint8_t> read_active(PyObject* object, std::size_t n) {
  std::vector<std::uint8_t> active(n, 1);
  if (object == nullptr || object == Py_None) return active;
  const Ref given = as_array(object, "active");
  auto* array = reinterpret_cast<PyArrayObject*>(given.get());
  if (PyArray_TYPE(array) != NPY_BOOL) throw TypeError("active must be of bools");
  if (PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != static_cast<npy_intp>(n)) {
    throw std::invalid_argument("active must have shape (" + std::to_string(n) + ",), got " +
                                shape_text(PyArray_NDIM(array), PyArray_DIMS(array)));
  }
  const Ref flat =
      Ref::take(PyArray_FromArray(array, PyArray_DescrFromType(NPY_BOOL), NPY_ARRAY_CARRAY_RO));
  std::memcpy(active.data(), PyArray_DATA(reinterpret_cast<PyArrayObject*>(flat.get())), n);
  return active;
}

}  // namespace

// _begin_batch(n, **fields of the episodes [n, ...])
PyObject* begin_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                      PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    if (n_args != 1) throw TypeError("batched_episode() takes the number of episodes");
    const std::size_t n = as_size(args[0], "batch_size");
    FieldCall meta(*rows->meta);
    match_fields("batched_episode", args + n_args, keywords, &meta);
    rows->meta->prepare_rows(meta.values, n, &meta.rows);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->begin_lanes(n, meta.rows.sources);
    }
    Py_RETURN_NONE;
  });
}

PyObject* store_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                      PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    if (n_args > 1) {
      throw TypeError("store_batch() takes fields by name and `active`, got " +
                      std::to_string(n_args) + " positional arguments");
    }
    FieldCall steps(*rows->fields);
    PyObject* active = n_args == 1 ? args[0] : nullptr;
    const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    for (Py_ssize_t k = 0; k < n_keywords; ++k) {
      PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
      PyObject* value = args[n_args + k];
      if (steps.group.match(keyword, value, &steps.values, &steps.rows)) continue;
      if (active != nullptr || PyUnicode_CompareWithASCIIString(keyword, "active") != 0) {
        throw_unknown_field("store_batch", keyword, steps.group, nullptr);
      }
      active = value;
    }
    const std::size_t n = count_lanes("store_batch", *store, &steps);
    rows->fields->prepare_rows(steps.values, n, &steps.rows);
    const std::vector<std::uint8_t> mask = read_active(active, n);
    Source meta[kMaxFields];
    default_sources(*rows->meta, meta);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      ensure_lanes(store, n, meta);
      store->append_lanes(steps.rows.sources, mask.data());
    }
    Py_RETURN_NONE;
  });
}

PyObject* store_meta_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                           PyObject* keywords) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    if (n_args != 0) throw TypeError("store_meta_batch() takes fields by name");
    FieldCall meta(*rows->meta);
    match_fields("store_meta_batch", args, keywords, &meta);
    const std::size_t n = count_lanes("store_meta_batch", *store, &meta);
    rows->meta->prepare_rows(meta.values, n, &meta.rows);
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      if (store->n_lanes() == 0) {
        store->begin_lanes(n, meta.rows.sources);
      } else {
        ensure_lanes(store, n, nullptr);
        for (std::size_t i = 0; i < rows->meta->size(); ++i) {
          if (meta.values.of_field[i] != nullptr) store->set_lanes_meta(i, meta.rows.sources[i]);
        }
      }
    }
    Py_RETURN_NONE;
  });
}

// _update([(is_meta, field, firsts [E], counts [E], values [E * width, ...])]): value i * width + k
// goes to row firsts[i] + k, for k < counts[i] <= width.
PyObject* update_rows(PyObject* self, PyObject* entries) {
  return guard([&]() -> PyObject* {
    Ref engine;
    EpisodeStore* store = writable(self, &engine);
    const auto* rows = reinterpret_cast<EpisodeRows*>(self);
    const Ref list = Ref::take(PySequence_Fast(entries, "entries must be a sequence"));
    std::vector<std::unique_ptr<PushRows>> memory;  // of the values
    std::vector<EpisodePatch> patches;
    for (Py_ssize_t e = 0; e < PySequence_Fast_GET_SIZE(list.get()); ++e) {
      int is_meta = 0;
      PyObject* name = nullptr;
      PyObject* firsts_object = nullptr;
      PyObject* counts_object = nullptr;
      PyObject* values = nullptr;
      if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(list.get(), e), "pOOOO", &is_meta, &name,
                            &firsts_object, &counts_object, &values)) {
        throw PythonError();
      }
      const FieldGroup& group = is_meta != 0 ? *rows->meta : *rows->fields;
      const int field = group.find(name);
      if (field < 0) throw_unknown_field("update", name, *rows->fields, rows->meta);
      const IndexArg firsts(firsts_object, "firsts");
      const IndexArg counts(counts_object, "counts");
      const Ref array = as_array(values, "values");
      const auto n =
          static_cast<std::size_t>(PyArray_DIM(reinterpret_cast<PyArrayObject*>(array.get()), 0));
      if (firsts.size() == 0) continue;
      const std::size_t width = n / firsts.size();
      const Leaf& leaf = group.plan().leaves[static_cast<std::size_t>(field)];
      memory.push_back(std::make_unique<PushRows>());
      Source source{};
      prepare_field_rows(leaf, array.get(), n, memory.back().get(), &source);
      memory.back()->kept.push_back(Ref::borrow(array.get()));
      for (std::size_t i = 0; i < firsts.size(); ++i) {
        const auto count = static_cast<std::size_t>(counts.data()[i]);
        if (count > width) throw std::invalid_argument("counts must be at most the width");
        patches.push_back({is_meta != 0,
                           static_cast<std::size_t>(field),
                           static_cast<std::uint64_t>(firsts.data()[i]),
                           count,
                           {source.data + i * width * leaf.bytes, leaf.bytes}});
      }
    }
    {
      const ReleaseGil released;
      const std::lock_guard<std::mutex> lock(store->writer_mutex());
      store->update(patches);
    }
    Py_RETURN_NONE;
  });
}

}  // namespace sharpwave::bind
