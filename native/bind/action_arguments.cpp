#include "bind/action_arguments.hpp"

#include <stdexcept>

namespace sharpwave::bind {
namespace {

void check_shape(int ndim, const npy_intp* shape, int expected_ndim, const npy_intp* expected) {
  if (ndim == expected_ndim && PyArray_CompareLists(shape, expected, ndim)) return;
  throw std::invalid_argument("actions must have shape " + shape_text(expected_ndim, expected) +
                              ", got " + shape_text(ndim, shape));
}

}  // namespace

ActionArgs::ActionArgs(PyObject* object, const Envs& envs) : envs_(envs) {
  const VectorEnv& env = envs.env;
  const EnvSpec& spec = env.spec();
  npy_intp shape[3];
  int ndim = 0;
  shape[ndim++] = static_cast<npy_intp>(env.size());
  if (envs.is_multi) shape[ndim++] = static_cast<npy_intp>(spec.n_agents);
  if (spec.n_actions > 0) {
    const IndexArg& actions = indices_.emplace(object, "actions");
    check_shape(actions.ndim(), actions.shape(), ndim, shape);
    const std::size_t bad = env.find_bad_action(actions.data());
    if (bad < actions.size()) {
      throw std::invalid_argument("actions must be from 0 to " +
                                  std::to_string(spec.n_actions - 1) + ", got " +
                                  std::to_string(actions.data()[bad]) + place(bad));
    }
    data_ = actions.data();
  } else {
    const ArrayArg<float>& actions = numbers_.emplace(object, "actions");
    shape[ndim++] = static_cast<npy_intp>(spec.action_size);
    check_shape(actions.ndim(), actions.shape(), ndim, shape);
    const std::size_t bad = env.find_bad_action(actions.data());
    if (bad < actions.size()) {
      throw std::invalid_argument("actions must be finite, got " +
                                  number_text(static_cast<double>(actions.data()[bad])) +
                                  place(bad));
    }
    data_ = actions.data();
  }
}

std::string ActionArgs::place(std::size_t number) const {
  const std::size_t row = number / envs_.env.spec().action_size;
  const std::size_t n_agents = envs_.env.spec().n_agents;
  const std::string agent =
      envs_.is_multi ? "agent " + std::to_string(row % n_agents) + " of " : "";
  return " for " + agent + "environment " + std::to_string(row / n_agents);
}

}  // namespace sharpwave::bind
