// How the fields of a schema meet Python: the arguments of push and push_batch, nested
// observations, and the arrays of a batch. Made once per buffer, so that a call looks nothing up.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bind/arrays.hpp"
#include "core/replay.hpp"

namespace sharpwave::bind {

// One field: which argument it comes from, and its place inside a nested observation.
struct Leaf {
  std::size_t argument;
  std::vector<Ref> path;           // keys of dicts and positions of tuples, outermost first
  std::vector<Py_ssize_t> widths;  // the entries of each of those dicts and tuples
  std::string name;                // as errors call it: obs["image"]
  DType dtype;
  int numpy_type;
  PyArray_Descr* descr;  // NumPy's own object for the dtype, which most arrays point to
  std::vector<npy_intp> shape;
  std::vector<npy_intp> out_shape;  // the shape of one row in a batch
  std::size_t items;
  std::size_t bytes;
  std::byte truth[2][8];  // false and true as items of the field
  bool flag;              // any number is accepted and stored as 0 or 1
  bool direct;            // arrays of the same dtype need no look at their values
  bool finite;            // NaN and infinities are refused
};

// The batch as Python sees it: a field, or a dict or tuple of nodes.
struct Node {
  Ref key;
  Ref key_of_arrival;  // its name in a batch of arrivals; null where they do not have it
  int field = -1;
  bool is_tuple = false;
  std::vector<Node> children;
};

struct RowPlan {
  std::uint64_t id = 0;      // never the same for two plans
  std::vector<Leaf> leaves;  // by field of the schema
  std::vector<Ref>
      push_names;  // arguments of push: fields, then priority and stream where they exist
  std::vector<Ref> batch_names;          // the same arguments as push_batch calls them
  std::vector<std::size_t> batch_order;  // positional order of push_batch, as indices of arguments
  std::size_t count_leaf = 0;            // the leaf that tells the number of rows of a batch
  std::size_t n_arguments = 0;           // of fields
  std::size_t n_positional = 0;          // of push
  int priority_argument = -1;
  int stream_argument = -1;
  std::vector<Node> nodes;  // the batch's entries, one per argument
};

// `spec` is a dict made by sharpwave.buffers.schema.row_plan.
RowPlan make_row_plan(PyObject* spec, const Schema& schema);

DType dtype_of_numpy(int type, const char* name);
int numpy_of_dtype(DType dtype);

// Memory that lives as long as the call: small requests cost nothing.
class Arena {
 public:
  std::byte* take(std::size_t bytes) {
    const std::size_t rounded = (bytes + 15) & ~std::size_t{15};
    if (used_ + rounded <= sizeof(inline_)) {
      std::byte* memory = inline_ + used_;
      used_ += rounded;
      return memory;
    }
    large_.push_back(std::unique_ptr<std::byte[]>(new std::byte[bytes]));
    return large_.back().get();
  }

 private:
  alignas(16) std::byte inline_[1024];
  std::size_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> large_;
};

// The checked arguments of one push: every field as typed memory.
struct PushRows {
  std::size_t n = 1;
  std::array<Source, 16> few;
  std::vector<Source> many;
  const Source* sources = nullptr;
  const float* priorities = nullptr;
  const std::uint32_t* streams = nullptr;
  std::vector<Ref> kept;  // arrays made or found on the way
  Arena arena;
};

// Matches a FASTCALL's arguments to the plan's names; entries not given are null.
void match_arguments(const RowPlan& plan, bool batch, PyObject* const* args, Py_ssize_t n_args,
                     PyObject* keywords, PyObject** matched);

// Checks and converts everything; nothing is written to the buffer. Throws what Python should see.
void prepare_one(const RowPlan& plan, const Replay& replay, PyObject* const* matched,
                 PushRows* rows);
void prepare_many(const RowPlan& plan, const Replay& replay, PyObject* const* matched,
                  PushRows* rows);

// The parts of these, for who matches arguments in another way.

// Room for the plan's sources inside `rows`.
Source* allocate_sources(const RowPlan& plan, PushRows* rows);
// The object of this leaf inside its argument; `kept` owns what was found on the way.
PyObject* descend(const Leaf& leaf, PyObject* object, std::vector<Ref>* kept);
// One field's value as typed memory: one row, or n of them along a leading axis.
void prepare_field(const Leaf& leaf, PyObject* object, PushRows* rows, Source* source);
void prepare_field_rows(const Leaf& leaf, PyObject* object, std::size_t n, PushRows* rows,
                        Source* source);

}  // namespace sharpwave::bind
