#define SHARPWAVE_IMPORTS_NUMPY
#include <nanobind/nanobind.h>

#include "bind/bindings.hpp"
#include "bind/numpy_api.hpp"
#include "core/isa/kernels.hpp"

namespace nb = nanobind;

namespace sharpwave::bind {

void add_functions(PyObject* module, PyMethodDef* table) {
  if (PyModule_AddFunctions(module, table) != 0) throw nb::python_error();
}

}  // namespace sharpwave::bind

NB_MODULE(_native, module) {
  if (_import_array() < 0) throw nb::python_error();
  module.doc() = "The native core of sharpwave.";
  module.def(
      "isa", [] { return sharpwave::kernels().isa; },
      "The instruction set of the kernels in use: base, v3 (AVX2) or v4 (AVX-512).");
  sharpwave::bind::bind_disk(module.ptr());
  sharpwave::bind::bind_engine(module.ptr());
  sharpwave::bind::bind_fresh(module.ptr());
  sharpwave::bind::bind_row_buffer(module.ptr());
  sharpwave::bind::bind_episodes(module.ptr());
  sharpwave::bind::bind_episode_rows(module.ptr());
  sharpwave::bind::bind_loaders(module.ptr());
  sharpwave::bind::bind_llm(module.ptr());
  sharpwave::bind::bind_packing(module.ptr());
  sharpwave::bind::bind_policy(module.ptr());
  sharpwave::bind::bind_actor_critic(module.ptr());
  sharpwave::bind::bind_q_learning(module.ptr());
  sharpwave::bind::bind_returns(module.ptr());
  sharpwave::bind::bind_shared(module.ptr());
  sharpwave::bind::bind_stats(module.ptr());
  sharpwave::bind::bind_vector_env(module.ptr());
  sharpwave::bind::bind_world_layers(module.ptr());
  sharpwave::bind::bind_world_model(module.ptr());
  sharpwave::bind::bind_world_steps(module.ptr());
  sharpwave::bind::bind_collector(module.ptr());
}
