// The queues of fresh windows of a replay buffer, to be saved and restored.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/bindings.hpp"
#include "core/replay.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

// The rows of a window; and by stream the seq to go on from, and how many windows were handed out.
using QueueSpec = std::tuple<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>>;

std::vector<QueueSpec> fresh_queues(Replay& replay) {
  std::vector<QueueSpec> found;
  for (const FreshQueues::Queue& queue : replay.fresh().queues()) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
    for (const auto& place : queue.places) places.emplace_back(place.next, place.taken);
    found.emplace_back(queue.length, std::move(places));
  }
  return found;
}

void restore_fresh_queues(Replay& replay, const std::vector<QueueSpec>& saved) {
  std::vector<FreshQueues::Queue> queues;
  for (const auto& [length, places] : saved) {
    if (length == 0 || places.size() != replay.streams().count()) {
      throw std::invalid_argument("saved queues must be those of the buffer");
    }
    queues.push_back({length, {}});
    for (const auto& [next, taken] : places) queues.back().places.push_back({next, taken});
  }
  replay.fresh().set_queues(std::move(queues));
}

}  // namespace

void bind_fresh(PyObject* handle) {
  nb::module_ module = nb::borrow<nb::module_>(handle);
  module.def("fresh_queues", fresh_queues, "engine"_a,
             "(rows, [(next, taken) by stream]) of every queue of fresh windows.");
  module.def("restore_fresh_queues", restore_fresh_queues, "engine"_a, "queues"_a);
}

}  // namespace sharpwave::bind
