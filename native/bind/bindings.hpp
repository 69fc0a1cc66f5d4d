// One function per binding file; each adds its names to the module.
#pragma once

#include <Python.h>

namespace sharpwave::bind {

void bind_collector(PyObject* module);
void bind_disk(PyObject* module);
void bind_loaders(PyObject* module);
void bind_llm(PyObject* module);
void bind_packing(PyObject* module);
void bind_policy(PyObject* module);
void bind_actor_critic(PyObject* module);
void bind_q_learning(PyObject* module);
void bind_returns(PyObject* module);
void bind_row_buffer(PyObject* module);
void bind_shared(PyObject* module);
void bind_engine(PyObject* module);
void bind_fresh(PyObject* module);
void bind_episode_rows(PyObject* module);
void bind_episodes(PyObject* module);
void bind_stats(PyObject* module);
void bind_vector_env(PyObject* module);
void bind_world_layers(PyObject* module);
void bind_world_model(PyObject* module);
void bind_world_steps(PyObject* module);

using FastFunction = PyObject* (*)(PyObject* self, PyObject* const* args, Py_ssize_t nargs);

// The table entry of a METH_FASTCALL function.
inline PyMethodDef fast_function(const char* name, FastFunction function) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL,
          nullptr};
}

// Adds METH_FASTCALL functions (a table that ends with a null name) to the module.
void add_functions(PyObject* module, PyMethodDef* table);

}  // namespace sharpwave::bind
