// The arguments of sample and its relatives: names, seeds, views and selectors.
#pragma once

#include <algorithm>
#include <optional>

#include "bind/batch.hpp"

namespace sharpwave::bind {

// Interned names, made once.
struct Names {
  PyObject* spec = PyUnicode_InternFromString("_spec");
  PyObject* memory = PyUnicode_InternFromString("_memory");
  PyObject* batch_size = PyUnicode_InternFromString("batch_size");
  PyObject* seed = PyUnicode_InternFromString("seed");
  PyObject* view = PyUnicode_InternFromString("view");
  PyObject* selector = PyUnicode_InternFromString("selector");
  PyObject* out = PyUnicode_InternFromString("out");
  PyObject* indices = PyUnicode_InternFromString("indices");
  PyObject* priorities = PyUnicode_InternFromString("priorities");
};
const Names& names();

inline bool is_given(PyObject* object) { return object != nullptr && object != Py_None; }

// The truth of an argument that may be missing.
bool is_true(PyObject* object, const char* name);

// Matches a FASTCALL's arguments to fixed names, the first n_positional of which may be positional.
template <std::size_t N>
void match_fixed(const char* method, PyObject* const (&expected)[N], std::size_t n_positional,
                 PyObject* const* args, Py_ssize_t n_args, PyObject* keywords, PyObject** matched) {
  std::fill(matched, matched + N, nullptr);
  if (static_cast<std::size_t>(n_args) > n_positional) {
    throw TypeError(std::string(method) + "() takes at most " + std::to_string(n_positional) +
                    " positional arguments, got " + std::to_string(n_args));
  }
  for (Py_ssize_t i = 0; i < n_args; ++i) matched[i] = args[i];
  const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
    std::size_t found = 0;
    while (found < N && expected[found] != keyword &&
           PyUnicode_Compare(expected[found], keyword) != 0) {
      ++found;
    }
    if (found == N) {
      throw TypeError(std::string(method) + "() got an unexpected keyword argument '" +
                      as_utf8(keyword) + "'");
    }
    if (matched[found] != nullptr) {
      throw TypeError(std::string(method) + "() got multiple values for argument '" +
                      as_utf8(keyword) + "'");
    }
    matched[found] = args[n_args + k];
  }
}

// A seed from 0 to 2**64 - 1, or none.
std::optional<std::uint64_t> as_seed(PyObject* object);

constexpr Py_ssize_t kViewSpec = 11;
constexpr Py_ssize_t kSelectorSpec = 3;

// A view's or selector's `_spec`, a tuple of `size`: null when the object draws for itself in
// Python.
Ref spec_of(PyObject* object, const char* name, Py_ssize_t size);

// A view's spec: (kind, n, gamma, length, burn_in, stride, pad, cross, arrivals, discounts,
// fields). Throws where the buffer cannot give this view. `keep` holds on to the fields.
void read_view(PyObject* spec, const Replay& replay, BatchShape* shape, Ref* keep);

// A selector's spec: (kind, window, fresh).
Selector read_selector(PyObject* spec);
// Throws where the windows of a view are not such as a queue of fresh ones has.
void check_fresh(std::uint32_t length, const View& view, const Replay& replay);

}  // namespace sharpwave::bind
