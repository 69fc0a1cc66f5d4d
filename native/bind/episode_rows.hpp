// EpisodeRows: the type under EpisodeBuffer. Its methods are raw METH_FASTCALL ones, because they
// run for every step and every batch; they stand in three files.
#pragma once

#include "bind/episode_arguments.hpp"
#include "core/disk/episode_store.hpp"

namespace sharpwave::bind {

struct EpisodeRows {
  PyObject_HEAD PyObject* engine;
  EpisodeStore* store;
  FieldGroup* fields;
  FieldGroup* meta;
  PyObject* why_closed;  // a text, once it is closed
};

// The object behind `self`; throws when it is closed.
EpisodeRows* checked_episodes(PyObject* self);

// The store to write to. A buffer that was opened for reading takes the lock at its first write.
// The reference keeps it alive while the GIL is free.
EpisodeStore* writable(PyObject* self, Ref* engine);

// One call's values for a group of fields.
struct FieldCall {
  const FieldGroup& group;
  FieldValues values;
  PushRows rows;

  explicit FieldCall(const FieldGroup& fields) : group(fields) {
    FieldGroup::clear(&values, fields.size());
  }
};

// Matches keyword arguments to fields of `call`, or of `more` where given.
void match_fields(const char* method, PyObject* const* values, PyObject* keywords, FieldCall* call,
                  FieldCall* more = nullptr);

// Of the other two files.
PyObject* begin_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords);
PyObject* store_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args, PyObject* keywords);
PyObject* store_meta_batch(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                           PyObject* keywords);
PyObject* update_rows(PyObject* self, PyObject* entries);
PyObject* gather_steps(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                       PyObject* keywords);
PyObject* gather_ranges(PyObject* self, PyObject* const* args, Py_ssize_t n_args,
                        PyObject* keywords);

}  // namespace sharpwave::bind
