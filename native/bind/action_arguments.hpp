// Actions as Python gives them to native environments.
#pragma once

#include <optional>
#include <string>

#include "bind/index_arg.hpp"
#include "bind/vector_env.hpp"

namespace sharpwave::bind {

// As the environments take them, checked: throws ValueError for another shape, and for a number
// that is not an action.
class ActionArgs {
 public:
  ActionArgs(PyObject* object, const Envs& envs);

  const void* data() const { return data_; }

 private:
  // Whose action a number belongs to.
  std::string place(std::size_t number) const;

  const Envs& envs_;
  std::optional<IndexArg> indices_;
  std::optional<ArrayArg<float>> numbers_;
  const void* data_;
};

}  // namespace sharpwave::bind
