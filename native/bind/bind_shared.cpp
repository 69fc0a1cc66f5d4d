// The head of a ring in shared memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include "bind/bindings.hpp"
#include "core/shared_ring.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr int kPatience = 100;  // milliseconds between looks at signals

std::byte* head_memory(const Bytes& memory) {
  if (memory.size() < SharedRing::kBytes ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % 64 != 0) {
    throw std::invalid_argument("memory must be at least 256 bytes, aligned to 64");
  }
  return reinterpret_cast<std::byte*>(memory.data());
}

void lock(SharedRing& ring) {
  for (;;) {
    bool locked = false;
    {
      const nb::gil_scoped_release release;
      locked = ring.lock(kPatience);
    }
    if (locked) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

}  // namespace

void bind_shared(PyObject* handle) {
  nb::module_ module = nb::borrow<nb::module_>(handle);
  nb::class_<SharedRing>(module, "SharedRing",
                         "The head of a ring of steps in memory that processes share.")
      .def_ro_static("BYTES", &SharedRing::kBytes)
      .def(
          "__init__",
          [](SharedRing* self, const Bytes& memory) { new (self) SharedRing(head_memory(memory)); },
          "memory"_a, nb::keep_alive<1, 2>())
      .def_static(
          "create",
          [](const Bytes& memory, std::int64_t capacity) {
            SharedRing::create(head_memory(memory), capacity);
          },
          "memory"_a, "capacity"_a, "Prepares memory that is zero.")
      .def("lock", lock, "Wait for the right to write.")
      .def("begin", &SharedRing::begin, "The step whose slot may be written now.")
      .def("finish", &SharedRing::finish, "The slot is whole.")
      .def("clear", &SharedRing::clear, "Forget all steps.")
      .def("unlock", &SharedRing::unlock, "Let others write.")
      .def(
          "range",
          [](const SharedRing& self) {
            const SharedRing::Range range = self.range();
            return std::pair(range.first, range.end);
          },
          "The oldest whole step, and one after the newest.")
      .def("count", &SharedRing::count, "The steps, of which one may be in the writing.")
      .def("next_ticket", &SharedRing::next_ticket, "A number that nobody else gets.");
}

}  // namespace sharpwave::bind
