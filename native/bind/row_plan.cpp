#include "bind/row_plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace sharpwave::bind {
namespace {

Ref item(PyObject* dict, const char* key) {
  PyObject* value = PyDict_GetItemString(dict, key);
  if (value == nullptr) throw TypeError(std::string("the row plan lacks ") + key);
  return Ref::borrow(value);
}

// The items of a list or tuple.
std::vector<Ref> items(PyObject* sequence) {
  const Ref fast = Ref::take(PySequence_Fast(sequence, "expected a sequence"));
  std::vector<Ref> found;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    found.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(fast.get(), i)));
  }
  return found;
}

std::vector<Ref> interned(PyObject* sequence) {
  std::vector<Ref> names = items(sequence);
  for (Ref& name : names) {
    PyObject* object = name.release();
    PyUnicode_InternInPlace(&object);
    name = Ref(object);
  }
  return names;
}

long as_long(PyObject* object) {
  const long value = PyLong_AsLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

std::vector<npy_intp> as_shape(PyObject* object) {
  std::vector<npy_intp> shape;
  for (const Ref& dim : items(object)) shape.push_back(as_long(dim.get()));
  return shape;
}

Node make_node(PyObject* spec) {  // (key, field) or (key, "dict" | "tuple", [children])
  const std::vector<Ref> parts = items(spec);
  Node node;
  node.key = Ref::borrow(parts.at(0).get());
  if (parts.size() == 2) {
    node.field = static_cast<int>(as_long(parts[1].get()));
    return node;
  }
  node.is_tuple = PyUnicode_CompareWithASCIIString(parts.at(1).get(), "tuple") == 0;
  for (const Ref& child : items(parts.at(2).get())) node.children.push_back(make_node(child.get()));
  return node;
}

// Arrivals have the action that led to an observation, and where episodes end by other names.
Ref key_of_arrival(const Node& node, const Schema& schema) {
  const Node* leaf = &node;
  while (leaf->field < 0) leaf = &leaf->children.at(0);
  switch (schema.fields.at(static_cast<std::size_t>(leaf->field)).role) {
    case Role::next_obs:
    case Role::terminated:
    case Role::truncated:
      return Ref();
    case Role::action:
      return Ref::take(PyUnicode_InternFromString("prev_actions"));
    default:
      return Ref::borrow(node.key.get());
  }
}

}  // namespace

int numpy_of_dtype(DType dtype) {
  constexpr std::array<int, 12> kTypes = {NPY_BOOL,   NPY_INT8,  NPY_INT16,   NPY_INT32,
                                          NPY_INT64,  NPY_UINT8, NPY_UINT16,  NPY_UINT32,
                                          NPY_UINT64, NPY_HALF,  NPY_FLOAT32, NPY_FLOAT64};
  return kTypes[static_cast<std::size_t>(dtype)];
}

DType dtype_of_numpy(int type, const char* name) {
  switch (type) {
    case NPY_BOOL:
      return DType::boolean;
    case NPY_INT8:
      return DType::int8;
    case NPY_INT16:
      return DType::int16;
    case NPY_INT32:
      return DType::int32;
    case NPY_UINT8:
      return DType::uint8;
    case NPY_UINT16:
      return DType::uint16;
    case NPY_UINT32:
      return DType::uint32;
    case NPY_HALF:
      return DType::float16;
    case NPY_FLOAT32:
      return DType::float32;
    case NPY_FLOAT64:
      return DType::float64;
    default:
      break;
  }
  // long and long long are both 64 bits wide and have two numbers.
  if (PyTypeNum_ISUNSIGNED(type)) return DType::uint64;
  if (PyTypeNum_ISSIGNED(type)) return DType::int64;
  const Ref descr = Ref::take(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
  const Ref text = Ref::take(PyObject_Str(descr.get()));
  throw TypeError(std::string(name) + " must be of a bool, integer or float dtype, got " +
                  PyUnicode_AsUTF8(text.get()));
}

RowPlan make_row_plan(PyObject* spec, const Schema& schema) {
  static std::atomic<std::uint64_t> n_plans{0};
  RowPlan plan;
  plan.id = ++n_plans;
  plan.push_names = interned(item(spec, "push_names").get());
  plan.batch_names = interned(item(spec, "batch_names").get());
  for (const Ref& index : items(item(spec, "batch_order").get())) {
    plan.batch_order.push_back(static_cast<std::size_t>(as_long(index.get())));
  }
  plan.n_arguments = static_cast<std::size_t>(as_long(item(spec, "n_arguments").get()));
  plan.n_positional = static_cast<std::size_t>(as_long(item(spec, "n_positional").get()));
  plan.priority_argument = static_cast<int>(as_long(item(spec, "priority_argument").get()));
  plan.stream_argument = static_cast<int>(as_long(item(spec, "stream_argument").get()));
  const std::vector<Ref> leaves = items(item(spec, "leaves").get());
  for (std::size_t i = 0; i < leaves.size(); ++i) {  // (argument, path, name, out_shape, widths)
    const std::vector<Ref> parts = items(leaves[i].get());
    const Field& field = schema.fields.at(i);
    Leaf leaf;
    leaf.argument = static_cast<std::size_t>(as_long(parts.at(0).get()));
    leaf.path = items(parts.at(1).get());
    leaf.name = as_utf8(parts.at(2).get());
    leaf.out_shape = as_shape(parts.at(3).get());
    for (const Ref& width : items(parts.at(4).get())) leaf.widths.push_back(as_long(width.get()));
    leaf.dtype = field.dtype;
    leaf.numpy_type = numpy_of_dtype(field.dtype);
    leaf.shape.assign(field.shape.begin(), field.shape.end());
    leaf.descr = PyArray_DescrFromType(leaf.numpy_type);  // a singleton, never freed
    leaf.items = field.items();
    leaf.bytes = field.bytes();
    for (const bool value : {false, true}) {
      CastError error{};
      cast(DType::boolean, reinterpret_cast<const std::byte*>(&value), field.dtype,
           leaf.truth[value], 1, &error);
    }
    leaf.flag = field.role == Role::terminated || field.role == Role::truncated;
    leaf.finite = field.finite || field.role == Role::reward;
    leaf.direct = !leaf.finite && (!leaf.flag || leaf.dtype == DType::boolean);
    plan.leaves.push_back(std::move(leaf));
  }
  // A field of one item per row leaves no doubt, whatever the shape of its array.
  while (plan.count_leaf < plan.leaves.size() && plan.leaves[plan.count_leaf].items != 1) {
    ++plan.count_leaf;
  }
  if (plan.count_leaf == plan.leaves.size()) plan.count_leaf = 0;
  for (const Ref& node : items(item(spec, "nodes").get()))
    plan.nodes.push_back(make_node(node.get()));
  for (Node& node : plan.nodes) node.key_of_arrival = key_of_arrival(node, schema);
  return plan;
}

namespace {

[[noreturn]] void throw_unknown_keyword(const std::vector<Ref>& names, bool batch,
                                        PyObject* keyword) {
  const Ref difflib = Ref::take(PyImport_ImportModule("difflib"));
  const Ref list = Ref::take(PyList_New(0));
  for (const Ref& name : names) PyList_Append(list.get(), name.get());
  const Ref close =
      Ref::take(PyObject_CallMethod(difflib.get(), "get_close_matches", "OO", keyword, list.get()));
  std::string message = std::string(batch ? "push_batch" : "push") +
                        "() got an unexpected keyword argument '" + as_utf8(keyword) + "'";
  if (PyList_Size(close.get()) > 0) {
    message += "; did you mean '" + as_utf8(PyList_GetItem(close.get(), 0)) + "'?";
  }
  throw TypeError(message);
}

}  // namespace

void match_arguments(const RowPlan& plan, bool batch, PyObject* const* args, Py_ssize_t n_args,
                     PyObject* keywords, PyObject** matched) {
  const std::vector<Ref>& names = batch ? plan.batch_names : plan.push_names;
  const char* method = batch ? "push_batch" : "push";
  std::fill(matched, matched + names.size(), nullptr);
  const std::size_t positional = batch ? plan.batch_order.size() : plan.n_positional;
  if (static_cast<std::size_t>(n_args) > positional) {
    throw TypeError(std::string(method) + "() takes at most " + std::to_string(positional) +
                    " positional arguments, got " + std::to_string(n_args));
  }
  for (Py_ssize_t i = 0; i < n_args; ++i) {
    matched[batch ? plan.batch_order[static_cast<std::size_t>(i)] : static_cast<std::size_t>(i)] =
        args[i];
  }
  const Py_ssize_t n_keywords = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t k = 0; k < n_keywords; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
    std::size_t found = 0;
    while (found < names.size() && names[found].get() != keyword) ++found;
    if (found == names.size()) {  // not interned, or unknown
      found = 0;
      while (found < names.size() && PyUnicode_Compare(names[found].get(), keyword) != 0) ++found;
    }
    if (found == names.size()) throw_unknown_keyword(names, batch, keyword);
    if (matched[found] != nullptr) {
      throw TypeError(std::string(method) + "() got multiple values for argument '" +
                      as_utf8(keyword) + "'");
    }
    matched[found] = args[n_args + k];
  }
  for (std::size_t i = 0; i < plan.n_arguments; ++i) {
    if (matched[i] == nullptr || matched[i] == Py_None) {
      throw TypeError(std::string(method) + "() needs the argument '" + as_utf8(names[i].get()) +
                      "'");
    }
  }
}

}  // namespace sharpwave::bind
