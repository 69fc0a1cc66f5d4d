// Anchors: which step of which episode an item of a dataset is. Called by
// src/sharpwave/episodes/loaders, once per batch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "bind/index_arg.hpp"
#include "core/anchors.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

using Numbers = ArrayOut<std::int64_t>;

// Runs `body` and lets its exceptions, Python's among them, pass through nanobind.
template <typename Body>
nb::object returned(Body&& body) {
  PyObject* result = guard(std::forward<Body>(body));
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

std::vector<std::int64_t> numbers_of(nb::handle object, const char* name) {
  const IndexArg given(object.ptr(), name);
  return {given.data(), given.data() + given.size()};
}

Numbers fresh(std::size_t n) {
  const auto shape = static_cast<npy_intp>(n);
  return Numbers(nullptr, "out", 1, &shape);
}

// A tuple of three arrays to fill.
class Triple {
 public:
  explicit Triple(std::size_t n) : first_(fresh(n)), second_(fresh(n)), third_(fresh(n)) {}

  Anchors::Places places() const { return {first_.data(), second_.data(), third_.data()}; }
  Windows windows() const { return {first_.data(), second_.data(), third_.data()}; }
  PyObject* finish() {
    const Ref first = Ref::take(first_.finish());
    const Ref second = Ref::take(second_.finish());
    const Ref third = Ref::take(third_.finish());
    return PyTuple_Pack(3, first.get(), second.get(), third.get());
  }

 private:
  Numbers first_, second_, third_;
};

void construct(Anchors* memory, nb::handle counts, nb::handle starts, std::int64_t stride,
               nb::handle chosen) {
  const nb::object made = returned([&] {
    Anchors anchors(numbers_of(counts, "counts"), numbers_of(starts, "starts"), stride);
    if (!chosen.is_none()) anchors.choose(numbers_of(chosen, "chosen"));
    new (memory) Anchors(std::move(anchors));
    Py_RETURN_NONE;
  });
}

nb::object find(const Anchors& self, nb::handle items) {
  return returned([&] {
    const IndexArg numbers(items.ptr(), "items");
    Triple found(numbers.size());
    self.find(numbers.data(), numbers.size(), found.places());
    return found.finish();
  });
}

nb::object span(const Anchors& self, std::int64_t begin, std::int64_t end,
                std::optional<std::uint64_t> key) {
  return returned([&] {
    const bool inside = begin >= 0 && begin <= end && end <= self.size();
    Triple found(inside ? static_cast<std::size_t>(end - begin) : 0);
    self.span(begin, end, key ? &*key : nullptr, found.places());
    return found.finish();
  });
}

nb::object drawn_windows(nb::handle episodes, nb::handle first_rows, nb::handle lengths,
                         std::int64_t width, std::uint64_t key) {
  return returned([&] {
    const IndexArg of(episodes.ptr(), "episodes");
    const IndexArg rows(first_rows.ptr(), "first_rows");
    const IndexArg steps(lengths.ptr(), "lengths");
    if (rows.size() != of.size() || steps.size() != of.size()) {
      throw std::invalid_argument("first_rows and lengths must have the shape of episodes");
    }
    Triple found(of.size());
    draw_windows(of.data(), rows.data(), steps.data(), of.size(), width, key, found.windows());
    return found.finish();
  });
}

}  // namespace

void bind_loaders(PyObject* module) {
  nb::module_ m = nb::borrow<nb::module_>(module);
  nb::class_<Anchors>(m, "Anchors",
                      "The items of a dataset: counts[e] of episode e, or of those the chosen.")
      .def("__init__", construct, "counts"_a, "starts"_a, "stride"_a = 1, "chosen"_a = nb::none(),
           nb::sig("def __init__(self, counts: Any, starts: Any, stride: int = 1, "
                   "chosen: Any = None) -> None"))
      .def("__len__", [](const Anchors& self) { return self.size(); })
      .def("find", find, "items"_a,
           nb::sig("def find(self, items: Any) -> tuple[NDArray[numpy.int64], "
                   "NDArray[numpy.int64], NDArray[numpy.int64]]"),
           "The episode of every item, the step of the episode, and the row of that step.")
      .def("span", span, "begin"_a, "end"_a, "key"_a = nb::none(),
           nb::sig("def span(self, begin: int, end: int, key: int | None = None) -> "
                   "tuple[NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.int64]]"),
           "The same of items begin to end of a permutation with this key, or as they are.");
  m.def("drawn_windows", drawn_windows, "episodes"_a, "first_rows"_a, "lengths"_a, "width"_a,
        "key"_a,
        nb::sig("def drawn_windows(episodes: Any, first_rows: Any, lengths: Any, width: int, "
                "key: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.int64], "
                "NDArray[numpy.int64]]"),
        "The first step of a random window of each episode, its row, and the window's steps.");
}

}  // namespace sharpwave::bind
