// Objects that one binding file makes and another works with.
#pragma once

#include <Python.h>

#include <functional>

#include "bind/policy_arguments.hpp"
#include "core/learn/policy_actor.hpp"
#include "envs/vector_env.hpp"

namespace sharpwave::bind {

// The environments of a VectorEnv: what never changes of them. Throws for other objects and closed
// ones.
const VectorEnv& vector_env_of(PyObject* object);
// Calls body(env) while nobody else uses them; the caller has released the GIL.
void use_vector_env(PyObject* object, const std::function<void(VectorEnv*)>& body);

// The networks of a PolicyLearner. Throws for other objects.
const Policy& policy_of(PyObject* object);
const ActionSpec& actions_of(PyObject* object);
// Calls body(actor, parameters) while nobody else uses them; the caller has released the GIL.
void use_policy(PyObject* object, const std::function<void(PolicyActor*, const float*)>& body);

}  // namespace sharpwave::bind
