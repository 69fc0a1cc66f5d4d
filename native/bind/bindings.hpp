// One function per binding file; each adds its names to the module.
#pragma once

#include <Python.h>

namespace sharpwave::bind {

void bind_returns(PyObject* module);
void bind_row_buffer(PyObject* module);
void bind_engine(PyObject* module);

// Adds METH_FASTCALL functions (a table that ends with a null name) to the module.
void add_functions(PyObject* module, PyMethodDef* table);

}  // namespace sharpwave::bind
