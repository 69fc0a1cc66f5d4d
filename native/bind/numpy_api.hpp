// NumPy's C-API, imported once in module.cpp and shared by every binding file.
#pragma once

#include <Python.h>

#define PY_ARRAY_UNIQUE_SYMBOL sharpwave_numpy_api
#ifndef SHARPWAVE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
