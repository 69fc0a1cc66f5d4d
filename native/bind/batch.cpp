#include "bind/batch.hpp"

#include "bind/recycled_memory.hpp"

namespace sharpwave::bind {
namespace {

PyArrayObject* as_py_array(const Ref& ref) { return reinterpret_cast<PyArrayObject*>(ref.get()); }

template <typename T>
T* pointer(const Ref& array) {
  return array ? static_cast<T*>(PyArray_DATA(as_py_array(array))) : nullptr;
}

}  // namespace

Ref Batch::checked_array(PyObject* given, const std::string& name, const Dims& dims, int type) {
  return checked_output(given, name, dims.ndim, dims.values, type);
}

Ref Batch::new_array(const Dims& dims, PyArray_Descr* descr, std::size_t bytes) {
  if (bytes >= kSmallestRecycled) return new_output_array(dims.ndim, dims.values, descr->type_num);
  Py_INCREF(descr);  // the call takes it
  return Ref::take(PyArray_NewFromDescr(&PyArray_Type, descr, dims.ndim,
                                        const_cast<npy_intp*>(dims.values), nullptr, nullptr, 0,
                                        nullptr));
}

const Batch::SpecialKind& Batch::special_kind(int special) {
  const auto make = [](const char* key, int type, bool per_row) {
    return SpecialKind{key, type, PyArray_DescrFromType(type), PyUnicode_InternFromString(key),
                       per_row};
  };
  static const SpecialKind kinds[kSpecials] = {
      make("weights", NPY_FLOAT32, false),  make("indices", NPY_UINT64, false),
      make("discounts", NPY_FLOAT32, true), make("mask", NPY_BOOL, true),
      make("is_first", NPY_BOOL, true),     make("is_last", NPY_BOOL, true),
      make("is_terminal", NPY_BOOL, true)};
  return kinds[special];
}

bool Batch::wants(int special) const {
  switch (special) {
    case kWeights:
      return shape_.weights;
    case kIndices:
      return shape_.indices;
    case kDiscounts:
      return shape_.discounts;
    case kIsLast:
    case kIsTerminal:
      return shape_.view.arrivals;
    default:
      return shape_.view.kind == View::Kind::sequence;
  }
}

PyObject* Batch::key_of(const Node& node) const {
  return (shape_.view.arrivals ? node.key_of_arrival : node.key).get();
}

bool Batch::wants(const Node& node) const {
  PyObject* key = key_of(node);
  if (key == nullptr) return false;
  if (!fields_) return true;
  const int found = PySequence_Contains(fields_.get(), key);
  if (found < 0) throw PythonError();
  return found == 1;
}

Batch::Dims Batch::dims_of(const Leaf& leaf) const {
  Dims dims;
  dims.values[dims.ndim++] = static_cast<npy_intp>(shape_.batch);
  const bool sequence = shape_.view.kind == View::Kind::sequence;
  if (sequence) dims.values[dims.ndim++] = static_cast<npy_intp>(shape_.view.rows());
  for (const npy_intp dim : sequence ? leaf.shape : leaf.out_shape) dims.values[dims.ndim++] = dim;
  return dims;
}

Batch::Dims Batch::dims_of(int special) const {
  Dims dims;
  dims.values[dims.ndim++] = static_cast<npy_intp>(shape_.batch);
  const bool per_row =
      special_kind(special).per_row || (special == kIndices && shape_.view.arrivals);
  if (per_row && shape_.view.kind == View::Kind::sequence) {
    dims.values[dims.ndim++] = static_cast<npy_intp>(shape_.view.rows());
  }
  return dims;
}

Batch::Batch(const RowPlan& plan, const BatchShape& shape)
    : plan_id_(plan.id),
      shape_(shape),
      fields_(Ref::borrow(shape.fields)),
      arrays_(plan.leaves.size()) {
  Py_ssize_t wanted = 0;
  for (const Node& node : plan.nodes) {
    if (!wants(node)) continue;
    allocate(plan, node);
    ++wanted;
  }
  if (fields_ && wanted != PySequence_Size(fields_.get())) {
    throw std::invalid_argument("fields must name entries of the buffer's batches, each once");
  }
  for (int special = 0; special < kSpecials; ++special) {
    if (wants(special))
      specials_[special] = new_array(dims_of(special), special_kind(special).descr, 0);
  }
  set_pointers();
}

Batch::Batch(const RowPlan& plan, const BatchShape& shape, PyObject* given)
    : plan_id_(plan.id),
      shape_(shape),
      fields_(Ref::borrow(shape.fields)),
      arrays_(plan.leaves.size()) {
  if (!PyDict_Check(given)) {
    throw TypeError(std::string("out must be a dict of arrays, got ") + Py_TYPE(given)->tp_name);
  }
  Py_ssize_t found = 0;
  for (const Node& node : plan.nodes) {
    PyObject* key = key_of(node);
    PyObject* value = key == nullptr ? nullptr : PyDict_GetItemWithError(given, key);
    if (value == nullptr) continue;
    ++found;
    adopt(plan, node, value, std::string("out[\"") + PyUnicode_AsUTF8(key) + "\"]");
  }
  for (int special = 0; special < kSpecials; ++special) {
    PyObject* value = PyDict_GetItemWithError(given, special_kind(special).name);
    if (value == nullptr) continue;
    ++found;
    if (special != kIndices && !wants(special)) {
      throw std::invalid_argument(std::string("out has '") + special_kind(special).key +
                                  "', which this sample does not make");
    }
    specials_[special] =
        checked_array(value, std::string("out[\"") + special_kind(special).key + "\"]",
                      dims_of(special), special_kind(special).numpy_type);
  }
  if (found != PyDict_Size(given)) {
    throw std::invalid_argument("out has a key that is not a field of the buffer's batches");
  }
  set_pointers();
}

void Batch::allocate(const RowPlan& plan, const Node& node) {
  if (node.field >= 0) {
    const auto field = static_cast<std::size_t>(node.field);
    const Leaf& leaf = plan.leaves[field];
    arrays_[field] =
        new_array(dims_of(leaf), leaf.descr, shape_.batch * shape_.view.rows() * leaf.bytes);
  }
  for (const Node& child : node.children) allocate(plan, child);
}

void Batch::adopt(const RowPlan& plan, const Node& node, PyObject* given, const std::string& path) {
  if (node.field >= 0) {
    const auto field = static_cast<std::size_t>(node.field);
    arrays_[field] =
        checked_array(given, path, dims_of(plan.leaves[field]), plan.leaves[field].numpy_type);
  }
  for (const Node& child : node.children) {
    const Ref inner(PyObject_GetItem(given, child.key.get()));
    const Ref text = Ref::take(PyObject_Repr(child.key.get()));
    const std::string name = path + "[" + PyUnicode_AsUTF8(text.get()) + "]";
    if (!inner) {
      PyErr_Clear();
      throw std::invalid_argument(name + " is missing");
    }
    adopt(plan, child, inner.get(), name);
  }
}

void Batch::set_pointers() {
  out_.fields.resize(arrays_.size());
  for (std::size_t i = 0; i < arrays_.size(); ++i) out_.fields[i] = pointer<std::byte>(arrays_[i]);
  out_.weights = pointer<float>(specials_[kWeights]);
  out_.indices = pointer<std::uint64_t>(specials_[kIndices]);
  out_.discounts = pointer<float>(specials_[kDiscounts]);
  out_.mask = pointer<std::uint8_t>(specials_[kMask]);
  out_.is_first = pointer<std::uint8_t>(specials_[kIsFirst]);
  out_.is_last = pointer<std::uint8_t>(specials_[kIsLast]);
  out_.is_terminal = pointer<std::uint8_t>(specials_[kIsTerminal]);
}

Ref Batch::build(const RowPlan& plan, const Node& node) const {
  if (node.field >= 0) return Ref::borrow(arrays_[static_cast<std::size_t>(node.field)].get());
  if (node.is_tuple) {
    Ref tuple = Ref::take(PyTuple_New(static_cast<Py_ssize_t>(node.children.size())));
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i),
                       build(plan, node.children[i]).release());
    }
    return tuple;
  }
  Ref dict = Ref::take(PyDict_New());
  for (const Node& child : node.children) {
    const Ref value = build(plan, child);
    if (PyDict_SetItem(dict.get(), child.key.get(), value.get()) != 0) throw PythonError();
  }
  return dict;
}

Ref Batch::to_dict(const RowPlan& plan) const {
  Ref dict = Ref::take(PyDict_New());
  for (const Node& node : plan.nodes) {
    if (!wants(node)) continue;
    const Ref value = build(plan, node);
    if (PyDict_SetItem(dict.get(), key_of(node), value.get()) != 0) throw PythonError();
  }
  for (int special = 0; special < kSpecials; ++special) {
    if (!specials_[special]) continue;
    if (PyDict_SetItem(dict.get(), special_kind(special).name, specials_[special].get()) != 0) {
      throw PythonError();
    }
  }
  return dict;
}

}  // namespace sharpwave::bind
