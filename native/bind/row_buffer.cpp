// RowBuffer: the type under every replay buffer. Its methods are raw METH_FASTCALL ones, because a
// push is mostly the parsing of its arguments. The public classes derive from it and add names,
// docs and cold methods.
#include <nanobind/nanobind.h>

#include <optional>

#include "bind/batch.hpp"
#include "bind/bindings.hpp"
#include "bind/draw_arguments.hpp"
#include "bind/index_arg.hpp"
#include "bind/locks.hpp"
#include "bind/row_buffer_docs.hpp"
#include "bind/row_plan.hpp"

namespace nb = nanobind;

namespace sharpwave::bind {
namespace {

struct RowBuffer {
  PyObject_HEAD PyObject* engine;
  Replay* replay;
  RowPlan* plan;
};

// Reusable arrays for sample(out=...), held by sharpwave.Batch as `_memory`.
struct BatchMemory {
  PyObject_HEAD Batch* batch;
};

PyTypeObject* batch_memory_type = nullptr;

RowBuffer* checked(PyObject* self) {
  auto* buffer = reinterpret_cast<RowBuffer*>(self);
  if (buffer->replay == nullptr) throw std::runtime_error("the buffer was not initialized");
  buffer->replay->require_open();
  return buffer;
}

// The same, for reading: with what a writer in another process pushed.
RowBuffer* checked_reader(PyObject* self) {
  RowBuffer* buffer = checked(self);
  catch_up(buffer->replay);
  return buffer;
}

struct Workspace {  // per thread: the vectors keep their memory between calls
  std::vector<Anchor> anchors;
  Slots slots;
};
Workspace& workspace() {
  static thread_local Workspace space;
  return space;
}

// The batch to write to: fresh, the reusable memory of a sharpwave.Batch, or the caller's dict.
struct Target {
  std::optional<Batch> own;
  const Batch* batch;
};
// The memory of a sharpwave.Batch, null for any other dict.
Ref memory_of(PyObject* out) {
  if (PyDict_CheckExact(out)) return Ref();
  Ref memory(PyObject_GetAttr(out, names().memory));
  if (!memory) PyErr_Clear();
  return memory && Py_TYPE(memory.get()) == batch_memory_type ? std::move(memory) : Ref();
}
const Batch* batch_of(const Ref& memory) {
  return reinterpret_cast<BatchMemory*>(memory.get())->batch;
}
void open_target(const RowPlan& plan, const BatchShape& shape, PyObject* out, Target* target) {
  if (!is_given(out)) {
    target->own.emplace(plan, shape);
    target->batch = &*target->own;
    return;
  }
  if (const Ref memory = memory_of(out)) {
    target->batch = batch_of(memory);
    if (!target->batch->is_for(plan, shape)) {
      throw std::invalid_argument("out was made for another buffer, batch_size, view or indices");
    }
    return;
  }
  target->own.emplace(plan, shape, out);
  target->batch = &*target->own;
}

PyObject* finish(const RowPlan& plan, const Target& target, PyObject* out) {
  return is_given(out) ? Py_NewRef(out) : target.batch->to_dict(plan).release();
}

PyObject* push(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked(self);
    const RowPlan& plan = *buffer->plan;
    if (n_args == 1 && keywords == nullptr && buffer->replay->is_durable()) {
      return PyObject_CallMethod(self, "_push_record", "O", args[0]);
    }
    PyObject* matched[64];
    match_arguments(plan, false, args, n_args, keywords, matched);
    PushRows rows;
    prepare_one(plan, *buffer->replay, matched, &rows);
    with_locks(buffer->replay, Rows::exclusive, buffer->replay->priorities() != nullptr, 0.0,
               [&](ReplayLocks& locks) {
                 if (!buffer->replay->has_room(1, rows.streams)) locks.release_gil();
                 buffer->replay->push(1, rows.sources, rows.streams, rows.priorities);
               });
    Py_RETURN_NONE;
  });
}

PyObject* push_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked(self);
    PyObject* matched[64];
    match_arguments(*buffer->plan, true, args, n_args, keywords, matched);
    PushRows rows;
    prepare_many(*buffer->plan, *buffer->replay, matched, &rows);
    with_locks(buffer->replay, Rows::exclusive, buffer->replay->priorities() != nullptr,
               buffer->replay->read_cost(rows.n), [&](ReplayLocks& locks) {
                 if (!buffer->replay->has_room(rows.n, rows.streams)) locks.release_gil();
                 buffer->replay->push(rows.n, rows.sources, rows.streams, rows.priorities);
               });
    Py_RETURN_NONE;
  });
}

PyObject* sample(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked_reader(self);
    Replay& replay = *buffer->replay;
    const Names& n = names();
    PyObject* const expected[] = {n.batch_size, n.seed, n.view, n.selector, n.out, n.indices};
    PyObject* given[6];
    match_fixed("sample", expected, 2, args, n_args, keywords, given);
    if (given[0] == nullptr) throw TypeError("sample() needs the argument 'batch_size'");
    BatchShape shape;
    shape.batch = as_size(given[0], "batch_size");
    const std::optional<std::uint64_t> seed = as_seed(given[1]);
    const bool prioritized = replay.priorities() != nullptr;
    Selector selector{prioritized ? Selector::Kind::priority : Selector::Kind::uniform, 0, 0};
    Ref fields;
    if (is_given(given[2]) || is_given(given[3])) {
      const Ref view_spec = is_given(given[2]) ? spec_of(given[2], "view", kViewSpec) : Ref();
      const Ref selector_spec =
          is_given(given[3]) ? spec_of(given[3], "selector", kSelectorSpec) : Ref();
      if ((is_given(given[2]) && !view_spec) || (is_given(given[3]) && !selector_spec)) {
        const auto or_none = [](PyObject* object) { return object == nullptr ? Py_None : object; };
        return PyObject_CallMethod(self, "_sample_custom", "OOOOOO", given[0], or_none(given[1]),
                                   or_none(given[2]), or_none(given[3]), or_none(given[4]),
                                   is_true(given[5], "indices") ? Py_True : Py_False);
      }
      if (view_spec) read_view(view_spec.get(), replay, &shape, &fields);
      if (selector_spec) selector = read_selector(selector_spec.get());
      if (selector.kind == Selector::Kind::priority && !prioritized) {
        throw std::invalid_argument("this selector needs a buffer with priorities");
      }
    }
    if (selector.fresh > 0) check_fresh(selector.fresh, shape.view, replay);
    const bool by_priority = selector.kind == Selector::Kind::priority;
    shape.weights = by_priority;
    shape.indices = by_priority || is_true(given[5], "indices");
    const std::uint64_t limit =
        selector.kind == Selector::Kind::recent
            ? std::min<std::uint64_t>(selector.window, replay.streams().live())
            : replay.streams().live();
    if (shape.batch > 0 && limit == 0) {
      throw std::invalid_argument("buffer is empty: push steps before sampling");
    }
    if (shape.batch > limit && !replay.options().oversample) {
      const bool is_all = limit == replay.streams().live();
      throw std::invalid_argument(
          "batch_size must be at most " + std::to_string(limit) +
          (is_all ? ", the number of stored steps" : ", the steps to draw from") + ", got " +
          std::to_string(shape.batch));
    }
    Target target;
    open_target(*buffer->plan, shape, given[4], &target);
    Workspace& space = workspace();
    const double work = replay.read_cost(shape.batch * shape.view.rows()) +
                        (by_priority ? 80.0 * static_cast<double>(shape.batch) : 0.0);
    with_locks(&replay, Rows::shared, by_priority, work, [&](ReplayLocks& locks) {
      const BatchOut& out = target.batch->out();
      replay.draw(selector, shape.view, replay.generator(seed), shape.batch, &space.anchors);
      if (out.weights != nullptr) replay.weights(space.anchors, out.weights);
      locks.unlock_tree();
      replay.read(shape.view, space.anchors, &space.slots, out);
    });
    return finish(*buffer->plan, target, given[4]);
  });
}

// Step ids as unsigned numbers; negative ones were never given out.
const std::uint64_t* as_ids(const IndexArg& indices) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices.data()[i] < 0) {
      throw std::out_of_range("indices must not be negative, got " +
                              std::to_string(indices.data()[i]));
    }
  }
  return reinterpret_cast<const std::uint64_t*>(indices.data());
}

PyObject* gather(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked_reader(self);
    Replay& replay = *buffer->replay;
    PyObject* const expected[] = {names().indices, names().view, names().out};
    PyObject* given[3];
    match_fixed("gather", expected, 1, args, n_args, keywords, given);
    if (given[0] == nullptr) throw TypeError("gather() needs the argument 'indices'");
    const IndexArg indices(given[0], "indices");
    const std::uint64_t* ids = as_ids(indices);
    BatchShape shape;
    shape.batch = indices.size();
    Ref fields;
    if (is_given(given[1])) {
      const Ref spec = spec_of(given[1], "view", kViewSpec);
      if (!spec) throw TypeError("gather() takes a view without relabeling");
      read_view(spec.get(), replay, &shape, &fields);
    }
    if (is_given(given[2])) {
      const Ref memory = memory_of(given[2]);
      shape.indices = memory && batch_of(memory)->out().indices != nullptr;
    }
    Target target;
    open_target(*buffer->plan, shape, given[2], &target);
    Workspace& space = workspace();
    with_locks(&replay, Rows::shared, false, replay.read_cost(shape.batch * shape.view.rows()),
               [&](ReplayLocks&) {
                 replay.find(ids, indices.size(), &space.anchors);
                 replay.read(shape.view, space.anchors, &space.slots, target.batch->out());
               });
    return finish(*buffer->plan, target, given[2]);
  });
}

PyObject* update_priorities(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                            PyObject* keywords) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked(self);
    Replay& replay = *buffer->replay;
    PyObject* const expected[] = {names().indices, names().priorities};
    PyObject* given[2];
    match_fixed("update_priorities", expected, 2, args, n_args, keywords, given);
    if (given[0] == nullptr || given[1] == nullptr) {
      throw TypeError("update_priorities() needs the arguments 'indices' and 'priorities'");
    }
    if (replay.priorities() == nullptr) throw std::invalid_argument("the buffer has no priorities");
    const IndexArg indices(given[0], "indices");
    const ArrayArg<float> priorities(given[1], "priorities");
    if (priorities.size() != indices.size()) {
      throw std::invalid_argument("priorities must have length " + std::to_string(indices.size()) +
                                  " like indices, got " + std::to_string(priorities.size()));
    }
    const std::uint64_t* ids = as_ids(indices);
    static thread_local std::vector<float> magnitudes;
    magnitudes.resize(priorities.size());
    const float* given_priorities = priorities.data();
    for (std::size_t i = 0; i < magnitudes.size(); ++i) {
      magnitudes[i] = __builtin_fabsf(given_priorities[i]);
      if (!(magnitudes[i] <= std::numeric_limits<float>::max())) {
        throw std::invalid_argument("priorities must be finite, got NaN or infinity at position " +
                                    std::to_string(i));
      }
    }
    std::size_t stale = 0;
    with_locks(&replay, Rows::shared, true, 80.0 * static_cast<double>(indices.size()),
               [&](ReplayLocks&) {
                 stale = replay.update_priorities(ids, magnitudes.data(), indices.size());
               });
    return PyLong_FromSize_t(stale);
  });
}

// _rewrite(indices, fields): extra columns of steps by id, a dict of arrays [n, ...].
PyObject* rewrite(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked(self);
    Replay& replay = *buffer->replay;
    if (n_args != 2 || !PyDict_Check(args[1])) throw TypeError("_rewrite() takes ids and a dict");
    const RowPlan& plan = *buffer->plan;
    const IndexArg indices(args[0], "indices", -1);
    PushRows rows;
    Source* sources = allocate_sources(plan, &rows);
    std::vector<std::size_t> fields;
    for (std::size_t i = 0; i < plan.leaves.size(); ++i) {
      const Leaf& leaf = plan.leaves[i];
      PyObject* name = plan.push_names[leaf.argument].get();
      PyObject* value = PyDict_GetItemWithError(args[1], name);
      if (value == nullptr) continue;
      if (replay.schema().fields[i].role != Role::extra) throw TypeError("a field of a step");
      prepare_field_rows(leaf, descend(leaf, value, &rows.kept), indices.size(), &rows,
                         &sources[i]);
      fields.push_back(i);
    }
    const auto* ids = reinterpret_cast<const std::uint64_t*>(indices.data());
    std::size_t stale = 0;
    with_locks(&replay, Rows::exclusive, false, replay.read_cost(indices.size()),
               [&](ReplayLocks& locks) {
                 if (replay.is_durable()) locks.release_gil();
                 stale = replay.rewrite(ids, indices.size(), fields, sources);
               });
    return PyLong_FromSize_t(stale);
  });
}

PyObject* as_ids_array(const std::vector<std::uint64_t>& found) {
  npy_intp count = static_cast<npy_intp>(found.size());
  Ref ids = Ref::take(PyArray_SimpleNew(1, &count, NPY_UINT64));
  std::copy(found.begin(), found.end(),
            static_cast<std::uint64_t*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(ids.get()))));
  return ids.release();
}

// _drawable(view): the ids of all steps that the view may draw, oldest first within a stream.
PyObject* drawable(PyObject* self, PyObject* view) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked_reader(self);
    BatchShape shape;
    Ref fields;
    const Ref spec = spec_of(view, "view", kViewSpec);
    if (spec) read_view(spec.get(), *buffer->replay, &shape, &fields);
    std::vector<std::uint64_t> found;
    with_locks(buffer->replay, Rows::shared, false,
               20.0 * static_cast<double>(buffer->replay->streams().live()),
               [&](ReplayLocks&) { found = buffer->replay->ids(shape.view); });
    return as_ids_array(found);
  });
}

// _take_fresh(view, length, most): the ids of fresh windows, at most so many.
PyObject* take_fresh(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked_reader(self);
    if (n_args != 3) throw TypeError("_take_fresh() takes 3 arguments");
    BatchShape shape;
    Ref fields;
    const Ref spec = args[0] == Py_None ? Ref() : spec_of(args[0], "view", kViewSpec);
    if (spec) read_view(spec.get(), *buffer->replay, &shape, &fields);
    check_fresh(static_cast<std::uint32_t>(as_size(args[1], "length")), shape.view,
                *buffer->replay);
    const std::size_t most = as_size(args[2], "most");
    std::vector<Anchor> found;
    with_locks(buffer->replay, Rows::shared, false, 0.0, [&](ReplayLocks&) {
      buffer->replay->fresh().take(shape.view, buffer->replay->streams(), most, false, &found);
    });
    std::vector<std::uint64_t> ids;
    for (const Anchor& anchor : found) ids.push_back(buffer->replay->streams().id(anchor));
    return as_ids_array(ids);
  });
}

// _allocate(batch_size, view, selector, indices): (dict of fresh arrays, BatchMemory over them)
PyObject* allocate(PyObject* self, PyObject* const* args, Py_ssize_t n_args) {
  return guard([&]() -> PyObject* {
    RowBuffer* buffer = checked(self);
    if (n_args != 4) throw TypeError("_allocate() takes 4 arguments");
    bool prioritized = buffer->replay->priorities() != nullptr;
    if (args[2] != Py_None) {
      const Ref spec = spec_of(args[2], "selector", kSelectorSpec);
      if (!spec) throw TypeError("batch() takes a selector that does not draw in Python");
      prioritized = read_selector(spec.get()).kind == Selector::Kind::priority;
    }
    BatchShape shape;
    shape.batch = as_size(args[0], "batch_size");
    shape.weights = prioritized;
    shape.indices = prioritized || is_true(args[3], "indices");
    Ref fields;
    if (args[1] != Py_None) {
      const Ref spec = spec_of(args[1], "view", kViewSpec);
      if (!spec) throw TypeError("batch() takes a view without relabeling");
      read_view(spec.get(), *buffer->replay, &shape, &fields);
    }
    Ref memory = Ref::take(batch_memory_type->tp_alloc(batch_memory_type, 0));
    auto* holder = reinterpret_cast<BatchMemory*>(memory.get());
    holder->batch = new Batch(*buffer->plan, shape);
    const Ref dict = holder->batch->to_dict(*buffer->plan);
    return PyTuple_Pack(2, dict.get(), memory.get());
  });
}

Py_ssize_t length(PyObject* self) {
  auto* buffer = reinterpret_cast<RowBuffer*>(self);
  if (buffer->replay == nullptr) return 0;
  if (!buffer->replay->is_durable()) {
    return static_cast<Py_ssize_t>(buffer->replay->streams().live());
  }
  const Ref steps(guard([&]() -> PyObject* {
    return PyLong_FromUnsignedLongLong(checked_reader(self)->replay->streams().live());
  }));
  return steps ? PyLong_AsSsize_t(steps.get()) : -1;
}

PyObject* new_buffer(PyTypeObject* type, PyObject*, PyObject*) { return type->tp_alloc(type, 0); }

int init_buffer(PyObject* self, PyObject* args, PyObject*) {
  PyObject* engine = nullptr;
  PyObject* spec = nullptr;
  if (!PyArg_ParseTuple(args, "OO!", &engine, &PyDict_Type, &spec)) return -1;
  PyObject* done = guard([&]() -> PyObject* {
    auto* buffer = reinterpret_cast<RowBuffer*>(self);
    if (buffer->replay != nullptr) throw std::runtime_error("the buffer is initialized already");
    if (!nb::isinstance<Replay>(nb::handle(engine))) throw TypeError("engine must be an Engine");
    Replay* replay = nb::inst_ptr<Replay>(nb::handle(engine));
    auto plan = std::make_unique<RowPlan>(make_row_plan(spec, replay->schema()));
    if (plan->push_names.size() > 64) throw std::invalid_argument("fields must be at most 60");
    buffer->plan = plan.release();
    buffer->replay = replay;
    buffer->engine = Py_NewRef(engine);
    return Py_NewRef(Py_None);
  });
  Py_XDECREF(done);
  return done == nullptr ? -1 : 0;
}

void free_buffer(PyObject* self) {
  auto* buffer = reinterpret_cast<RowBuffer*>(self);
  PyTypeObject* type = Py_TYPE(self);
  delete buffer->plan;
  Py_XDECREF(buffer->engine);
  type->tp_free(self);
  Py_DECREF(type);
}

void free_memory(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<BatchMemory*>(self)->batch;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_engine(PyObject* self, void*) {
  return guard([&]() -> PyObject* { return Py_NewRef(checked_reader(self)->engine); });
}

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"push", as_method(push), METH_FASTCALL | METH_KEYWORDS, kPushDoc},
    {"push_batch", as_method(push_batch), METH_FASTCALL | METH_KEYWORDS, kPushBatchDoc},
    {"sample", as_method(sample), METH_FASTCALL | METH_KEYWORDS, kSampleDoc},
    {"gather", as_method(gather), METH_FASTCALL | METH_KEYWORDS, kGatherDoc},
    {"update_priorities", as_method(update_priorities), METH_FASTCALL | METH_KEYWORDS,
     kUpdatePrioritiesDoc},
    {"_rewrite", as_method(rewrite), METH_FASTCALL, nullptr},
    {"_drawable", as_method(drawable), METH_O, nullptr},
    {"_take_fresh", as_method(take_fresh), METH_FASTCALL, nullptr},
    {"_allocate", as_method(allocate), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef getters[] = {
    {"_engine", get_engine, nullptr, "The engine behind the buffer.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot buffer_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_buffer)},
    {Py_tp_init, reinterpret_cast<void*>(init_buffer)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_buffer)},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {0, nullptr},
};
PyType_Spec buffer_spec = {"sharpwave._native.RowBuffer", sizeof(RowBuffer), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, buffer_slots};
PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_memory)},
    {0, nullptr},
};
PyType_Spec memory_spec = {"sharpwave._native.BatchMemory", sizeof(BatchMemory), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

}  // namespace

void bind_row_buffer(PyObject* module) {
  batch_memory_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&memory_spec));
  PyObject* type = PyType_FromSpec(&buffer_spec);
  if (batch_memory_type == nullptr || type == nullptr ||
      PyModule_AddObject(module, "RowBuffer", type) != 0) {
    throw nb::python_error();
  }
}

}  // namespace sharpwave::bind
