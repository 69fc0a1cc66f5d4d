// The arguments of an episode buffer's methods: fields by name, nested or dotted, with defaults for
// those that are not given.
#pragma once

#include <string>
#include <vector>

#include "bind/row_plan.hpp"

namespace sharpwave::bind {

inline constexpr std::size_t kMaxFields = 256;

// The values of one call by field; null where none was given.
struct FieldValues {
  PyObject* of_field[kMaxFields];
  PyObject* of_argument[kMaxFields];
  std::size_t given = 0;
};

// One group of fields: those of steps, or those of episodes.
class FieldGroup {
 public:
  // `spec` is a dict made by sharpwave.formats.spec.
  explicit FieldGroup(PyObject* spec);

  const RowPlan& plan() const { return plan_; }
  const Schema& schema() const { return schema_; }
  std::size_t size() const { return plan_.leaves.size(); }
  PyObject* name(std::size_t field) const { return names_[field].get(); }
  // The field of this dotted name, or -1.
  int find(PyObject* name) const;

  static void clear(FieldValues* values, std::size_t n_fields);
  // Notes a value by the name of an argument or a field; false for a name that is neither.
  bool match(PyObject* name, PyObject* value, FieldValues* values, PushRows* rows) const;
  // All values as typed memory, one row each; numbers fill fields of any shape.
  void prepare_one(const FieldValues& values, PushRows* rows) const;
  // The same for n rows each.
  void prepare_rows(const FieldValues& values, std::size_t n, PushRows* rows) const;
  // The length of the leading axis of the first value given, -1 when there is none.
  std::ptrdiff_t count_rows(const FieldValues& values, PushRows* rows) const;
  // What a field has when nothing is given.
  Source default_source(std::size_t field) const;
  // The given values in order of arguments, defaults where there is none.
  Ref memory(const FieldValues& values) const;

 private:
  Schema schema_;
  RowPlan plan_;
  std::vector<Ref> names_;                // dotted, by field
  std::vector<std::size_t> first_field_;  // by argument
  std::vector<std::size_t> n_fields_;     // by argument
  std::vector<std::vector<std::byte>> defaults_;
  Ref memory_type_;                  // the namedtuple, of steps
  std::vector<Ref> default_values_;  // by argument
};

// Throws TypeError for a keyword that names no field, with the nearest that does.
[[noreturn]] void throw_unknown_field(const char* method, PyObject* keyword,
                                      const FieldGroup& fields, const FieldGroup* more);

}  // namespace sharpwave::bind
