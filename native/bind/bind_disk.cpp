// The parts of a store on disk that Python puts together: the writer's lock, the commit state, and
// checksums.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "core/disk/checksum.hpp"
#include "core/disk/commit_state.hpp"
#include "core/disk/delta.hpp"
#include "core/disk/writer_lock.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

using Rows = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using RowsOut = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DeltaFunction = void (*)(const unsigned char*, std::size_t, std::size_t, std::size_t,
                               unsigned char*);

void apply_delta(DeltaFunction function, const Rows& data, std::size_t row_bytes,
                 std::size_t item_bytes, const RowsOut& out) {
  if (row_bytes == 0 || item_bytes == 0 || row_bytes % item_bytes != 0 ||
      data.size() % row_bytes != 0 || out.size() != data.size()) {
    throw std::invalid_argument("data must be whole rows of whole items, and out as long");
  }
  const nb::gil_scoped_release release;
  function(data.data(), data.size(), row_bytes, item_bytes, out.data());
}

}  // namespace

void bind_disk(PyObject* handle) {
  nb::module_ module = nb::borrow<nb::module_>(handle);
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void*) {
        try {
          std::rethrow_exception(error);
        } catch (const IoError&) {
          set_python_error();
        }
      },
      nullptr);
  nb::class_<WriterLock>(module, "WriterLock", "Holds a folder for its one writer.")
      .def(nb::init<const std::string&>(), "path"_a)
      .def_prop_ro("is_mine", &WriterLock::is_mine,
                   "False in a process forked from the one that took the lock.");
  module.def("writer_of", &WriterLock::owner, "path"_a,
             "The process that holds the lock at `path`, 0 when nobody does.");
  module.def("create_commit_state", &CommitState::create, "path"_a, "n_words"_a,
             "Makes the file of a store's commit words, all 0.");
  module.def(
      "delta_rows",
      [](const Rows& data, std::size_t row_bytes, std::size_t item_bytes, const RowsOut& out) {
        apply_delta(delta_rows, data, row_bytes, item_bytes, out);
      },
      "data"_a, "row_bytes"_a, "item_bytes"_a, "out"_a,
      "Rows as their differences, bytes of equal weight together.");
  module.def(
      "undelta_rows",
      [](const Rows& data, std::size_t row_bytes, std::size_t item_bytes, const RowsOut& out) {
        apply_delta(undelta_rows, data, row_bytes, item_bytes, out);
      },
      "data"_a, "row_bytes"_a, "item_bytes"_a, "out"_a, "The rows that `delta_rows` was given.");
  module.def(
      "crc32c",
      [](const nb::bytes& data, std::uint32_t so_far) {
        return crc32c(so_far, data.c_str(), data.size());
      },
      "data"_a, "so_far"_a = 0, "CRC-32C of what `so_far` covers followed by `data`.");
}

}  // namespace sharpwave::bind
