// The parts of a store on disk that Python puts together: the writer's lock, the commit state, and
// checksums.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind/arrays.hpp"
#include "bind/bindings.hpp"
#include "core/disk/checksum.hpp"
#include "core/disk/commit_state.hpp"
#include "core/disk/writer_lock.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {

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
      "crc32c",
      [](const nb::bytes& data, std::uint32_t so_far) {
        return crc32c(so_far, data.c_str(), data.size());
      },
      "data"_a, "so_far"_a = 0, "CRC-32C of what `so_far` covers followed by `data`.");
}

}  // namespace sharpwave::bind
