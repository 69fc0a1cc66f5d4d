// EpisodeEngine: the cold side of an episode buffer (opening, ends of episodes, the table,
// flushes).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "bind/bindings.hpp"
#include "bind/episode_arguments.hpp"
#include "core/disk/episode_store.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

using Columns = std::vector<std::tuple<std::string, std::size_t, std::size_t, std::size_t>>;
using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Blocks = std::vector<std::tuple<std::size_t, std::uint64_t, std::int64_t, ReadBytes>>;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

std::vector<ColumnSpec> as_specs(const Columns& columns) {
  std::vector<ColumnSpec> specs;
  for (const auto& [name, row_bytes, chunk_rows, block_rows] : columns) {
    specs.push_back({name, row_bytes, chunk_rows, block_rows});
  }
  return specs;
}

void construct(EpisodeStore* memory, const std::string& folder, const Columns& steps,
               const Columns& episodes, std::size_t index_chunk_rows, std::uint64_t max_episodes,
               std::uint64_t max_timesteps, bool circular, bool power, std::size_t decoded_bytes,
               std::uint32_t identity, bool write, bool repair) {
  const nb::gil_scoped_release released;
  new (memory) EpisodeStore({folder, as_specs(steps), as_specs(episodes), index_chunk_rows,
                             max_episodes, max_timesteps, circular, power, decoded_bytes, identity},
                            write ? Access::write : Access::read, repair);
}

// Runs a writer's method with the GIL let go: it may wait for the disk.
template <typename... Arguments>
auto writing(void (EpisodeStore::*method)(Arguments...)) {
  return [method](EpisodeStore& store, Arguments... arguments) {
    const nb::gil_scoped_release released;
    const std::lock_guard<std::mutex> lock(store.writer_mutex());
    (store.*method)(arguments...);
  };
}

// (what is wrong with which chunk, ids of the episodes lost with them, their steps)
nb::tuple as_tuple(const EpisodeDamage& damage) {
  return nb::make_tuple(damage.chunks, to_numpy(damage.ids), damage.steps);
}

// Blocks of rows: (column, chunk, block, bytes).
void install(EpisodeStore& store, const Blocks& blocks) {
  std::vector<CodedBlock> places;
  std::vector<const std::byte*> rows;
  std::vector<std::size_t> bytes;
  for (const auto& [column, chunk, block, data] : blocks) {
    places.push_back({column, chunk, static_cast<std::uint64_t>(block)});
    rows.push_back(reinterpret_cast<const std::byte*>(data.data()));
    bytes.push_back(data.size());
  }
  const nb::gil_scoped_release released;
  store.install(places, rows, bytes);
}

nb::tuple verify(const EpisodeStore& store) {
  EpisodeDamage damage;
  {
    const nb::gil_scoped_release released;
    damage = store.verify();
  }
  return as_tuple(damage);
}

nb::tuple table(const EpisodeStore& store, bool aborted, bool open) {
  EpisodeTable found;
  {
    const nb::gil_scoped_release released;
    found = store.table(aborted, open);
  }
  return nb::make_tuple(to_numpy(std::move(found.ids)), to_numpy(std::move(found.starts)),
                        to_numpy(std::move(found.lengths)), to_numpy(std::move(found.flags)));
}

void gather_meta(const EpisodeStore& store, const Ids& ids, std::size_t column, const Bytes& out) {
  if (column >= store.options().episodes.size()) throw std::out_of_range("no such column");
  if (out.size() != ids.size() * store.options().episodes[column].row_bytes) {
    throw std::invalid_argument("out has another size than the rows");
  }
  const nb::gil_scoped_release released;
  store.gather_meta(ids.data(), ids.size(), column, reinterpret_cast<std::byte*>(out.data()));
}

}  // namespace

void bind_episodes(PyObject* handle) {
  nb::module_ module = nb::borrow<nb::module_>(handle);
  module.attr("MAX_EPISODE_FIELDS") = kMaxFields;
  module.attr("EPISODE_STATE_WORDS") = EpisodeStore::kStateWords;
  module.attr("EPISODE_INDEX_ROW_BYTES") = EpisodeStore::kIndexRowBytes;
  module.def("choose_chunk_rows", &choose_chunk_rows, "row_bytes"_a, "max_rows"_a,
             "Rows per chunk file for rows of this size of which there will be at most max_rows.");
  nb::class_<EpisodeStore>(module, "EpisodeEngine", "Episodes in a folder.")
      .def("__init__", &construct, "folder"_a, "steps"_a, "episodes"_a, "index_chunk_rows"_a,
           "max_episodes"_a, "max_timesteps"_a, "circular"_a, "power"_a, "decoded_bytes"_a,
           "identity"_a, "write"_a, "repair"_a)
      .def_prop_ro("is_writer", &EpisodeStore::is_writer)
      .def_prop_ro("has_open", &EpisodeStore::has_open)
      .def_prop_ro("open_length", &EpisodeStore::open_length)
      .def_prop_ro("steps_front", &EpisodeStore::steps_front)
      .def_prop_ro("steps_top", &EpisodeStore::steps_top)
      .def_prop_ro("n_complete", &EpisodeStore::count_complete)
      .def("complete", [write = writing(&EpisodeStore::end)](
                           EpisodeStore& store) { write(store, EpisodeFlag::complete); })
      .def("abort", [write = writing(&EpisodeStore::end)](
                        EpisodeStore& store) { write(store, EpisodeFlag::aborted); })
      .def("flush", writing(&EpisodeStore::flush))
      .def("settle", writing(&EpisodeStore::settle))
      .def("clear", writing(&EpisodeStore::clear))
      .def("close", writing(&EpisodeStore::close))
      .def("close_if_idle",
           [](EpisodeStore& store) {
             const nb::gil_scoped_release released;
             const std::lock_guard<std::mutex> lock(store.writer_mutex());
             return store.close_if_idle();
           })
      .def("abandon", writing(&EpisodeStore::abandon))
      .def("refresh", &EpisodeStore::refresh, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("n_lanes", &EpisodeStore::n_lanes)
      .def_prop_ro("repaired", [](const EpisodeStore& s) { return as_tuple(s.repaired()); })
      .def("install", &install, "blocks"_a)
      .def(
          "compressible",
          [](EpisodeStore& store, std::size_t column) {
            const nb::gil_scoped_release released;
            const std::lock_guard<std::mutex> lock(store.writer_mutex());
            return store.compressible(column);
          },
          "column"_a)
      .def("adopt_coded", writing(&EpisodeStore::adopt_coded), "column"_a, "chunk"_a)
      .def("verify", &verify)
      .def("table", &table, "aborted"_a, "open"_a = false)
      .def("gather_meta", &gather_meta, "ids"_a, "column"_a, "out"_a);
}

}  // namespace sharpwave::bind
