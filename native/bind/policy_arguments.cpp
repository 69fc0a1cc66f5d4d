#include "bind/policy_arguments.hpp"

#include <algorithm>
#include <memory>
#include <string>

namespace sharpwave::bind {
namespace {

void check_shape(const char* name, int ndim, const npy_intp* shape,
                 const std::vector<std::size_t>& expected) {
  std::vector<npy_intp> wanted(expected.begin(), expected.end());
  const int dims = static_cast<int>(wanted.size());
  if (ndim != dims || !PyArray_CompareLists(shape, wanted.data(), dims)) {
    throw std::invalid_argument(std::string(name) + " must have shape " +
                                shape_text(dims, wanted.data()) + ", got " +
                                shape_text(ndim, shape));
  }
}

}  // namespace

std::unique_ptr<Head> ActionSpec::make_head() const {
  switch (kind) {
    case Kind::choices:
      return make_choices(options);
    case Kind::bits:
      return make_bits(options[0]);
    case Kind::normals:
      break;
  }
  return make_normals(options[0]);
}

ObsArg::ObsArg(PyObject* given, const char* name, std::size_t n_inputs) : array_(given, name) {
  if (array_.ndim() != 2 || static_cast<std::size_t>(array_.dim(1)) != n_inputs) {
    throw std::invalid_argument(std::string(name) + " must have shape (n, " +
                                std::to_string(n_inputs) + "), got " +
                                shape_text(array_.ndim(), array_.shape()));
  }
}

MaskArg::MaskArg(PyObject* given, std::size_t n, const Policy& policy, const ActionSpec& actions) {
  if (given == Py_None) return;
  if (!policy.head().is_maskable()) {
    throw std::invalid_argument("masks need discrete actions, got masks for a Gaussian policy");
  }
  array_.emplace(given, "masks");
  PyArrayObject* array = array_->array();
  const std::size_t n_outputs = policy.head().n_outputs();
  check_shape("masks", PyArray_NDIM(array), PyArray_DIMS(array), {n, n_outputs});
  if (actions.kind == ActionSpec::Kind::bits) return;  // zeros are always allowed
  for (std::size_t row = 0; row < n; ++row) {
    const std::uint8_t* mask = data() + row * n_outputs;
    for (const std::size_t options : actions.options) {
      if (std::all_of(mask, mask + options, [](std::uint8_t allowed) { return allowed == 0; })) {
        throw std::invalid_argument(
            "masks must allow at least one action, none is allowed in row " + std::to_string(row));
      }
      mask += options;
    }
  }
}

RolloutArgs::RolloutArgs(PyObject* const* columns, const Policy& policy, const ActionSpec& actions)
    : obs_(columns[0], "obs", policy.n_inputs()), masks_(columns[6], obs_.size(), policy, actions) {
  if (obs_.size() == 0) throw std::invalid_argument("obs must have rows, got none");
  floats_.reserve(kCount);
  rollout_.n_rows = obs_.size();
  rollout_.obs = obs_.data();
  take_actions(columns[1], policy, actions);
  rollout_.advantages = column(columns[2], kNames[2]);
  rollout_.returns = column(columns[3], kNames[3]);
  rollout_.log_probs = column(columns[4], kNames[4]);
  rollout_.values = column(columns[5], kNames[5]);
  rollout_.masks = masks_.data();
  rollout_.weights = column(columns[7], kNames[7]);
  take_joint(columns[8], columns[9], policy);
}

void RolloutArgs::take_joint(PyObject* joint, PyObject* joint_rows, const Policy& policy) {
  if (joint == Py_None) {
    if (policy.n_critic_inputs() != policy.n_inputs()) {
      throw std::invalid_argument("joint must be given for a critic with inputs of its own");
    }
    return;
  }
  joint_.emplace(joint, "joint", policy.n_critic_inputs());
  rollout_.joint = joint_->data();
  rollout_.n_joint = joint_->size();
  if (joint_rows == Py_None) {
    if (joint_->size() != rollout_.n_rows) {
      throw std::invalid_argument("joint must have " + std::to_string(rollout_.n_rows) +
                                  " rows like obs, got " + std::to_string(joint_->size()));
    }
    return;
  }
  joint_rows_.emplace(joint_rows, "joint_rows");
  check_shape("joint_rows", joint_rows_->ndim(), joint_rows_->shape(), {rollout_.n_rows});
  check_rows(*joint_rows_, "joint_rows", rollout_.n_joint);
  rollout_.joint_rows = joint_rows_->data();
}

const float* RolloutArgs::column(PyObject* given, const char* name) {
  if (given == Py_None) return nullptr;
  const ArrayArg<float>& array = floats_.emplace_back(given, name);
  check_shape(name, array.ndim(), array.shape(), {rollout_.n_rows});
  return array.data();
}

void RolloutArgs::take_actions(PyObject* given, const Policy& policy, const ActionSpec& actions) {
  const std::size_t n_actions = policy.head().n_actions();
  if (actions.kind == ActionSpec::Kind::normals) {
    const ArrayArg<float>& moves = floats_.emplace_back(given, "actions");
    check_shape("actions", moves.ndim(), moves.shape(), {rollout_.n_rows, n_actions});
    rollout_.moves = moves.data();
    return;
  }
  choices_.emplace(given, "actions");
  const bool is_flat = choices_->ndim() == 1 && n_actions == 1;
  check_shape("actions", choices_->ndim(), choices_->shape(),
              is_flat ? std::vector{rollout_.n_rows} : std::vector{rollout_.n_rows, n_actions});
  const bool bits = actions.kind == ActionSpec::Kind::bits;
  for (std::size_t i = 0; i < choices_->size(); ++i) {
    const std::size_t options = bits ? 2 : actions.options[i % n_actions];
    if (static_cast<std::uint64_t>(choices_->data()[i]) >= options) {
      throw std::invalid_argument("actions must be in [0, " + std::to_string(options) + "), got " +
                                  std::to_string(choices_->data()[i]) + " in row " +
                                  std::to_string(i / n_actions));
    }
  }
  rollout_.choices = choices_->data();
}

void check_rows(const IndexArg& rows, const char* name, std::size_t n_rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<std::uint64_t>(rows.data()[i]) >= n_rows) {
      throw std::out_of_range(std::string(name) + " must be in [0, " + std::to_string(n_rows) +
                              "), got " + std::to_string(rows.data()[i]));
    }
  }
}

}  // namespace sharpwave::bind
