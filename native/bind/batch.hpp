// The arrays of one batch: fresh ones, or the caller's.
#pragma once

#include <vector>

#include "bind/row_plan.hpp"

namespace sharpwave::bind {

// What a batch holds besides the schema's fields.
struct BatchShape {
  std::size_t batch = 0;
  View view;
  bool indices = false;
  bool weights = false;
  bool discounts = false;
  PyObject* fields = nullptr;  // a tuple of names to keep, or null for all

  friend bool same_arrays(const BatchShape& a, const BatchShape& b) {
    return a.batch == b.batch && a.view.kind == b.view.kind && a.view.rows() == b.view.rows() &&
           a.view.arrivals == b.view.arrivals && a.indices == b.indices && a.weights == b.weights &&
           a.discounts == b.discounts &&
           (a.fields == b.fields || (a.fields != nullptr && b.fields != nullptr &&
                                     PyObject_RichCompareBool(a.fields, b.fields, Py_EQ) == 1));
  }
};

class Batch {
 public:
  // Fresh arrays.
  Batch(const RowPlan& plan, const BatchShape& shape);
  // The arrays of the caller's dict (NumPy or torch, nested like the batch). Fields it lacks are
  // left out.
  Batch(const RowPlan& plan, const BatchShape& shape, PyObject* given);

  const BatchOut& out() const { return out_; }
  // Whether its arrays are those of such a batch of this plan.
  bool is_for(const RowPlan& plan, const BatchShape& shape) const {
    return plan_id_ == plan.id && same_arrays(shape_, shape);
  }
  // The batch as Python sees it: a dict, nested where the observations are.
  Ref to_dict(const RowPlan& plan) const;

 private:
  enum Special { kWeights, kIndices, kDiscounts, kMask, kIsFirst, kIsLast, kIsTerminal, kSpecials };
  struct SpecialKind {
    const char* key;
    int numpy_type;
    PyArray_Descr* descr;
    PyObject* name;  // the key as a Python string
    bool per_row;    // shaped like the rows of a sequence, not like the batch
  };
  static const SpecialKind& special_kind(int special);

  bool wants(int special) const;
  bool wants(const Node& node) const;
  // The name of an entry in this batch.
  PyObject* key_of(const Node& node) const;
  // The shape of an array, on the stack: these run for every sample.
  struct Dims {
    int ndim = 0;
    npy_intp values[NPY_MAXDIMS];
  };
  Dims dims_of(const Leaf& leaf) const;
  Dims dims_of(int special) const;
  // `bytes` is how large the array is; 0 where that is not much.
  static Ref new_array(const Dims& dims, PyArray_Descr* descr, std::size_t bytes);
  static Ref checked_array(PyObject* given, const std::string& name, const Dims& dims, int type);
  void allocate(const RowPlan& plan, const Node& node);
  void adopt(const RowPlan& plan, const Node& node, PyObject* given, const std::string& path);
  void set_pointers();
  Ref build(const RowPlan& plan, const Node& node) const;

  std::uint64_t plan_id_;
  BatchShape shape_;
  Ref fields_;
  std::vector<Ref> arrays_;  // by field
  Ref specials_[kSpecials];
  BatchOut out_;
};

}  // namespace sharpwave::bind
