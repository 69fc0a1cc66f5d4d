#include "bind/episode_arguments.hpp"

#include <algorithm>
#include <cstring>

namespace sharpwave::bind {
namespace {

PyObject* entry(PyObject* dict, const char* key) {
  PyObject* value = PyDict_GetItemString(dict, key);
  if (value == nullptr) throw TypeError(std::string("the fields lack ") + key);
  return value;
}

std::vector<Ref> entries(PyObject* list) {
  std::vector<Ref> found;
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    found.push_back(Ref::borrow(PyList_GET_ITEM(list, i)));
  }
  if (PyErr_Occurred()) throw PythonError();
  return found;
}

Field make_field(PyObject* spec) {  // (name, dtype, shape, role, finite)
  const char* name = nullptr;
  const char* dtype = nullptr;
  PyObject* shape = nullptr;
  const char* role = nullptr;
  int finite = 0;
  if (!PyArg_ParseTuple(spec, "ssO!sp", &name, &dtype, &PyTuple_Type, &shape, &role, &finite)) {
    throw PythonError();
  }
  Field field;
  field.name = name;
  field.dtype = dtype_from_name(dtype);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i) {
    field.shape.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i)));
  }
  if (PyErr_Occurred()) throw PythonError();
  field.role = role_from_name(role);
  field.finite = finite != 0;
  return field;
}

bool is_number(PyObject* object) {
  return PyFloat_Check(object) || PyLong_Check(object) || PyArray_CheckScalar(object);
}

// The field as if it had one item.
Leaf item_of(const Leaf& leaf) {
  Leaf item{};
  item.name = leaf.name;
  item.dtype = leaf.dtype;
  item.numpy_type = leaf.numpy_type;
  item.descr = leaf.descr;
  item.items = 1;
  item.bytes = leaf.bytes / leaf.items;
  std::memcpy(item.truth, leaf.truth, sizeof(leaf.truth));
  item.flag = leaf.flag;
  item.finite = leaf.finite;
  return item;
}

// One number in every item of the field.
void fill_field(const Leaf& leaf, PyObject* number, PushRows* rows, Source* source) {
  prepare_field(item_of(leaf), number, rows, source);
  const std::size_t bytes = leaf.bytes / leaf.items;
  std::byte* filled = rows->arena.take(leaf.bytes);
  for (std::size_t i = 0; i < leaf.items; ++i) {
    std::memcpy(filled + i * bytes, source->data, bytes);
  }
  *source = {filled, 0};
}

}  // namespace

FieldGroup::FieldGroup(PyObject* spec) {
  for (const Ref& field : entries(entry(spec, "fields"))) {
    schema_.fields.push_back(make_field(field.get()));
    names_.push_back(Ref::take(PyUnicode_InternFromString(schema_.fields.back().name.c_str())));
  }
  if (schema_.fields.size() > kMaxFields) {
    throw std::invalid_argument("fields must be at most " + std::to_string(kMaxFields) + ", got " +
                                std::to_string(schema_.fields.size()));
  }
  plan_ = make_row_plan(entry(spec, "plan"), schema_);
  first_field_.assign(plan_.n_arguments, 0);
  n_fields_.assign(plan_.n_arguments, 0);
  for (std::size_t i = plan_.leaves.size(); i-- > 0;) {
    first_field_[plan_.leaves[i].argument] = i;
    ++n_fields_[plan_.leaves[i].argument];
  }
  for (const Ref& value : entries(entry(spec, "defaults"))) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(value.get(), &data, &size) != 0) throw PythonError();
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    defaults_.emplace_back(bytes, bytes + size);
  }
  memory_type_ = Ref::borrow(entry(spec, "memory"));
  default_values_ = entries(entry(spec, "default_values"));
}

int FieldGroup::find(PyObject* name) const {
  const auto found = [&](auto&& same) {
    const auto place = std::find_if(names_.begin(), names_.end(), same);
    return place == names_.end() ? -1 : static_cast<int>(place - names_.begin());
  };
  const int at = found([&](const Ref& known) { return known.get() == name; });
  if (at >= 0 || !PyUnicode_Check(name)) return at;
  return found([&](const Ref& known) { return PyUnicode_Compare(known.get(), name) == 0; });
}

void FieldGroup::clear(FieldValues* values, std::size_t n_fields) {
  std::fill(values->of_field, values->of_field + n_fields, nullptr);
  std::fill(values->of_argument, values->of_argument + n_fields, nullptr);
  values->given = 0;
}

bool FieldGroup::match(PyObject* name, PyObject* value, FieldValues* values, PushRows* rows) const {
  const std::vector<Ref>& arguments = plan_.push_names;
  std::size_t argument = 0;
  while (argument < arguments.size() && arguments[argument].get() != name) ++argument;
  if (argument == arguments.size()) {  // not interned, dotted, or unknown
    argument = 0;
    while (argument < arguments.size() && PyUnicode_Compare(arguments[argument].get(), name) != 0) {
      ++argument;
    }
  }
  if (argument == arguments.size()) {
    const int field = find(name);
    if (field < 0) return false;
    if (value != Py_None) values->of_field[field] = value;
    values->given += value != Py_None;
    return true;
  }
  if (value == Py_None) return true;
  ++values->given;
  values->of_argument[argument] = value;
  const std::size_t first = first_field_[argument];
  for (std::size_t i = first; i < first + n_fields_[argument]; ++i) {
    const Leaf& leaf = plan_.leaves[i];
    values->of_field[i] = leaf.path.empty() ? value : descend(leaf, value, &rows->kept);
  }
  return true;
}

Source FieldGroup::default_source(std::size_t field) const { return {defaults_[field].data(), 0}; }

void FieldGroup::prepare_one(const FieldValues& values, PushRows* rows) const {
  Source* sources = allocate_sources(plan_, rows);
  for (std::size_t i = 0; i < plan_.leaves.size(); ++i) {
    const Leaf& leaf = plan_.leaves[i];
    PyObject* value = values.of_field[i];
    if (value == nullptr) {
      sources[i] = default_source(i);
    } else if (leaf.items > 1 && !PyArray_CheckExact(value) && is_number(value)) {
      fill_field(leaf, value, rows, &sources[i]);
    } else {
      prepare_field(leaf, value, rows, &sources[i]);
    }
  }
}

void FieldGroup::prepare_rows(const FieldValues& values, std::size_t n, PushRows* rows) const {
  Source* sources = allocate_sources(plan_, rows);
  rows->n = n;
  for (std::size_t i = 0; i < plan_.leaves.size(); ++i) {
    if (values.of_field[i] == nullptr) {
      sources[i] = default_source(i);
    } else {
      prepare_field_rows(plan_.leaves[i], values.of_field[i], n, rows, &sources[i]);
    }
  }
}

std::ptrdiff_t FieldGroup::count_rows(const FieldValues& values, PushRows* rows) const {
  for (std::size_t i = 0; i < plan_.leaves.size(); ++i) {
    if (values.of_field[i] == nullptr) continue;
    const Leaf& leaf = plan_.leaves[i];
    rows->kept.push_back(as_array(values.of_field[i], leaf.name.c_str()));
    auto* array = reinterpret_cast<PyArrayObject*>(rows->kept.back().get());
    if (PyArray_NDIM(array) == 0) {
      throw std::invalid_argument(leaf.name + " must have a leading axis of its own, got shape ()");
    }
    return PyArray_DIM(array, 0);
  }
  return -1;
}

Ref FieldGroup::memory(const FieldValues& values) const {
  auto* type = reinterpret_cast<PyTypeObject*>(memory_type_.get());
  const std::size_t n = plan_.n_arguments;
  Ref made = Ref::take(type->tp_alloc(type, static_cast<Py_ssize_t>(n)));
  for (std::size_t i = 0; i < n; ++i) {
    PyObject* value = values.of_argument[i];
    if (value == nullptr) value = default_values_[i].get();
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), Py_NewRef(value));
  }
  return made;
}

void throw_unknown_field(const char* method, PyObject* keyword, const FieldGroup& fields,
                         const FieldGroup* more) {
  const Ref known = Ref::take(PyList_New(0));
  for (const FieldGroup* group : {&fields, more}) {
    if (group == nullptr) continue;
    for (const Ref& name : group->plan().push_names) PyList_Append(known.get(), name.get());
  }
  const Ref module = Ref::take(PyImport_ImportModule("sharpwave.core.suggest"));
  const Ref hint =
      Ref::take(PyObject_CallMethod(module.get(), "did_you_mean", "OO", keyword, known.get()));
  const Ref names = Ref::take(PyObject_Repr(known.get()));
  throw TypeError(std::string(method) + "() got an unknown field '" + as_utf8(keyword) + "'" +
                  as_utf8(hint.get()) + " (the fields are " + as_utf8(names.get()) + ")");
}

}  // namespace sharpwave::bind
