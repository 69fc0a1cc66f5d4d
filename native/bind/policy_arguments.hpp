// A rollout as it comes from Python, checked against a policy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/index_arg.hpp"
#include "bind/primitive_args.hpp"
#include "core/learn/minibatch.hpp"

namespace sharpwave::bind {

// What the actions of a policy are.
struct ActionSpec {
  enum class Kind { choices, bits, normals };
  Kind kind;
  std::vector<std::size_t> options;  // of each choice; of bits and normals their number

  std::unique_ptr<Head> make_head() const;
};

// Inputs [n, n_inputs] of a network in float32.
class ObsArg {
 public:
  ObsArg(PyObject* given, const char* name, std::size_t n_inputs);

  const float* data() const { return array_.data(); }
  std::size_t size() const { return static_cast<std::size_t>(array_.dim(0)); }

 private:
  ArrayArg<float> array_;
};

// Masks [n, n_outputs] that allow every row something, or None.
class MaskArg {
 public:
  MaskArg(PyObject* given, std::size_t n, const Policy& policy, const ActionSpec& actions);

  const std::uint8_t* data() const { return array_ ? array_->data() : nullptr; }

 private:
  std::optional<FlagArg> array_;
};

// The columns of a batch; those that may be missing are None.
class RolloutArgs {
 public:
  // Throws ValueError where there is no row, a shape does not fit, an action does not exist or a
  // row allows nothing.
  RolloutArgs(PyObject* const* columns, const Policy& policy, const ActionSpec& actions);

  // In the order that the constructor takes them.
  static constexpr const char* kNames[] = {"obs",       "actions",   "advantages", "returns",
                                           "log_probs", "values",    "masks",      "weights",
                                           "joint",     "joint_rows"};
  static constexpr std::size_t kCount = 10;

  const PolicyRollout& rollout() const { return rollout_; }

 private:
  const float* column(PyObject* given, const char* name);
  void take_actions(PyObject* given, const Policy& policy, const ActionSpec& actions);
  void take_joint(PyObject* joint, PyObject* joint_rows, const Policy& policy);

  ObsArg obs_;
  MaskArg masks_;
  std::vector<ArrayArg<float>> floats_;
  std::optional<IndexArg> choices_, joint_rows_;
  std::optional<ObsArg> joint_;
  PolicyRollout rollout_;
};

// Rows of a rollout; throws IndexError for those that do not exist.
void check_rows(const IndexArg& rows, const char* name, std::size_t n_rows);

}  // namespace sharpwave::bind
