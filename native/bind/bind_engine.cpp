// Engine: the cold side of a replay buffer (construction, statistics, saving, selections made in
// Python).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <limits>
#include <mutex>

#include "bind/bindings.hpp"
#include "core/relabel.hpp"
#include "core/replay.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace sharpwave::bind {
namespace {

using Ids = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FieldSpec = std::tuple<std::string, std::string, std::vector<std::int64_t>, std::string, int,
                             int, bool, int>;
using PrioritySpec = std::tuple<std::string, double, double, bool, bool>;
using HeadSpec = std::tuple<std::uint64_t, std::uint64_t, bool, bool>;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner);
}

ReplayOptions make_options(const std::vector<FieldSpec>& fields, bool stream_rows,
                           std::size_t capacity, std::size_t n_streams) {
  ReplayOptions options;
  for (const auto& [name, dtype, shape, role, stack, axis, finite, twin] : fields) {
    options.schema.fields.push_back(
        {name, dtype_from_name(dtype), shape, role_from_name(role), stack, axis, finite, twin});
  }
  options.layout = stream_rows ? Layout::stream : Layout::transition;
  options.capacity = capacity;
  options.n_streams = n_streams;
  return options;
}

FolderOptions make_folder_options(const nb::dict& given) {
  FolderOptions options;
  options.path = nb::cast<std::string>(given["path"]);
  options.access = nb::cast<bool>(given["read_only"]) ? Access::read : Access::write;
  options.row_bytes = nb::cast<std::size_t>(given["row_bytes"]);
  options.chunk_rows = nb::cast<std::size_t>(given["chunk_rows"]);
  options.max_chunks = nb::cast<std::size_t>(given["max_chunks"]);
  options.power = nb::cast<bool>(given["power"]);
  options.continue_episodes = nb::cast<bool>(given["continue_episodes"]);
  options.verify = nb::cast<bool>(given["verify"]);
  options.repair = nb::cast<bool>(given["repair"]);
  options.identity = nb::cast<std::uint32_t>(given["identity"]);
  options.hot_rows = nb::cast<std::size_t>(given["hot_rows"]);
  options.resident_bytes = nb::cast<std::size_t>(given["resident_bytes"]);
  return options;
}

void construct(Replay* memory, const std::vector<FieldSpec>& fields, bool stream_rows,
               std::size_t capacity, std::size_t n_streams, std::uint64_t seed, bool oversample,
               const std::optional<PrioritySpec>& priorities,
               const std::optional<nb::dict>& folder) {
  ReplayOptions options = make_options(fields, stream_rows, capacity, n_streams);
  options.seed = seed;
  options.oversample = oversample;
  if (priorities) {
    const auto& [kind, alpha, beta, stratified, batch_norm] = *priorities;
    options.priorities = {kind == "rank" ? PriorityKind::rank : PriorityKind::proportional, alpha,
                          beta, stratified, batch_norm};
  }
  if (folder) options.folder = make_folder_options(*folder);
  const nb::gil_scoped_release release;
  new (memory) Replay(std::move(options));
}

// (row_bytes, chunk_rows, max_chunks) of the columns in the folder of such a buffer, and how many
// commit words it has.
std::tuple<std::size_t, std::size_t, std::size_t, std::size_t> describe_folder(
    const std::vector<FieldSpec>& fields, bool stream_rows, std::size_t capacity,
    std::size_t n_streams) {
  const FolderOptions columns =
      choose_columns(make_options(fields, stream_rows, capacity, n_streams));
  return {columns.row_bytes, columns.chunk_rows, columns.max_chunks,
          ReplayFolder::n_words(std::max<std::size_t>(n_streams, 1), 1)};
}

// Holds the rows for reading. The GIL is let go first: a writer may need it to finish.
class SharedRows {
 public:
  explicit SharedRows(Replay& replay) : lock_(replay.rows_lock()) { lock_.lock_shared(); }
  ~SharedRows() { lock_.unlock_shared(); }
  SharedRows(const SharedRows&) = delete;
  SharedRows& operator=(const SharedRows&) = delete;

 private:
  RwLock& lock_;
};

nb::dict stats(Replay& replay) {
  nb::dict found;
  const ReplayCounters& counters = replay.counters();
  const std::uint64_t sampled = counters.sampled().load();
  const std::uint64_t pushed = counters.pushed().load();
  found["pushed"] = pushed;
  found["sampled"] = sampled;
  found["sampled_age"] = sampled == 0 ? 0.0
                                      : static_cast<double>(counters.sampled_age().load()) /
                                            static_cast<double>(sampled);
  found["stale_updates"] = counters.stale_updates().load();
  found["bytes"] = replay.bytes();
  if (replay.is_durable()) {
    std::uint64_t disk_bytes = 0;
    std::size_t resident_bytes = 0;
    {
      const nb::gil_scoped_release release;
      const SharedRows rows(replay);
      replay.require_open();
      disk_bytes = replay.disk_bytes();
      resident_bytes = replay.resident_bytes();
    }
    found["disk_bytes"] = disk_bytes;
    found["resident_bytes"] = resident_bytes;
  }
  found["record_bytes"] = replay.store().stride();
  return found;
}

// Chooses goals for drawn steps: (ids of the goal steps, which rows are relabeled).
nb::tuple choose_hindsight_goals(Replay& replay, const Ids& ids, int strategy, double ratio,
                                 std::optional<std::uint64_t> seed) {
  std::vector<std::uint64_t> goal_ids(ids.size());
  std::vector<std::uint8_t> relabeled(ids.size());
  {
    const nb::gil_scoped_release release;
    const SharedRows rows(replay);
    std::vector<Anchor> anchors;
    std::vector<Anchor> goals;
    replay.find(ids.data(), ids.size(), &anchors);
    choose_goals(replay.streams(), anchors, static_cast<GoalStrategy>(strategy), ratio,
                 replay.generator(seed), relabeled.data(), &goals);
    for (std::size_t i = 0; i < goals.size(); ++i) goal_ids[i] = replay.streams().id(goals[i]);
  }
  return nb::make_tuple(to_numpy(std::move(goal_ids)), to_numpy(std::move(relabeled)));
}

// The bytes of one stored column, slot after slot.
void copy_column(Replay& replay, std::size_t field, std::size_t first, std::size_t count,
                 std::uint8_t* memory, bool write) {
  if (replay.is_durable()) throw std::invalid_argument("the rows of a folder are in its files");
  const RowStore& store = replay.store();
  if (field >= replay.schema().fields.size() || !store.is_stored(field)) {
    throw std::invalid_argument("field must be stored");
  }
  if (first > store.slots() || count > store.slots() - first) {
    throw std::out_of_range("slots must be in the store");
  }
  const Column& column = store.column(field);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* record = replay.store().record(first + i) + column.offset;
    if (write) {
      std::memcpy(record, memory + i * column.bytes, column.bytes);
    } else {
      std::memcpy(memory + i * column.bytes, record, column.bytes);
    }
  }
}

void check_bytes(Replay& replay, std::size_t field, std::size_t count, std::size_t given) {
  if (field >= replay.schema().fields.size() ||
      given != count * replay.store().column(field).bytes) {
    throw std::invalid_argument("memory must hold the slots of the column exactly");
  }
}

std::vector<HeadSpec> heads(Replay& replay) {
  std::vector<HeadSpec> found;
  for (std::size_t i = 0; i < replay.streams().count(); ++i) {
    const Streams::Head& head = replay.streams().head(i);
    found.emplace_back(head.floor, head.top, head.pending, head.open);
  }
  return found;
}

void restore_heads(Replay& replay, const std::vector<HeadSpec>& saved,
                   const std::vector<Bytes>& bitmaps) {
  Streams& streams = replay.streams();
  const std::vector<Bits*> own = streams.bitmaps();
  const std::uint64_t limit = (std::uint64_t{1} << 62) / streams.count();  // keeps ids in 64 bits
  if (saved.size() != streams.count() || bitmaps.size() != own.size()) {
    throw std::invalid_argument("saved streams must be those of the buffer");
  }
  for (const auto& [floor, top, pending, open] : saved) {
    const bool stream_rows = replay.options().layout == Layout::stream;
    const std::uint64_t observed = pending ? (open ? 2 : 1) : 0;
    if (floor > top || top - floor > streams.slots_per_stream() || top > limit ||
        top - floor < observed || (pending && !stream_rows)) {
      throw std::invalid_argument("saved streams must fit the buffer");
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (bitmaps[i].size() != own[i]->words().size() * sizeof(std::uint64_t)) {
      throw std::invalid_argument("saved marks must fit the buffer");
    }
  }
  for (std::size_t stream = 0; stream < saved.size(); ++stream) {
    const auto& [floor, top, pending, open] = saved[stream];
    if (!pending) continue;
    const std::size_t newest = streams.slot(static_cast<std::uint32_t>(stream), top - 1);
    if ((bitmaps[0].data()[newest / 8] >> (newest % 8)) & 1) {
      throw std::invalid_argument("saved marks must not make a step of the newest observation");
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::memcpy(own[i]->words().data(), bitmaps[i].data(), bitmaps[i].size());
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    Streams::Head& head = streams.head(i);
    std::tie(head.floor, head.top, head.pending, head.open) = saved[i];
  }
  streams.recount();
}

std::vector<std::uint64_t> permuted(std::uint64_t n, std::uint64_t seed, std::uint64_t begin,
                                    std::uint64_t end) {
  if (begin > end || end > n) throw std::out_of_range("begin and end must be in the permutation");
  const Permutation permutation(n, Philox(seed, 0));
  std::vector<std::uint64_t> found(end - begin);
  for (std::uint64_t i = begin; i < end; ++i) found[i - begin] = permutation(i);
  return found;
}

Priorities& priorities_of(Replay& replay) {
  if (replay.priorities() == nullptr) throw std::invalid_argument("the buffer has no priorities");
  return *replay.priorities();
}

// With rows locked, which keeps pushes out but not updates.
nb::dict save_priorities(Replay& replay) {
  nb::dict saved;
  Priorities& priorities = priorities_of(replay);
  std::unique_lock<std::mutex> tree(replay.tree_mutex(), std::try_to_lock);
  if (!tree.owns_lock()) {
    const nb::gil_scoped_release release;
    tree.lock();
  }
  std::vector<float> leaves(priorities.capacity());
  std::vector<float> raw;
  for (std::size_t i = 0; i < leaves.size(); ++i) leaves[i] = priorities.leaf(i);
  if (priorities.kind() == PriorityKind::rank) {
    raw.resize(leaves.size());
    for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = priorities.priority(i);
  }
  saved["leaves"] = to_numpy(std::move(leaves));
  saved["raw"] = to_numpy(std::move(raw));
  saved["sorted"] = to_numpy(std::vector<float>(priorities.order().sorted));
  saved["changes"] = priorities.order().changes;
  saved["max_priority"] = priorities.max_priority();
  saved["beta"] = replay.beta();
  return saved;
}

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void restore_priorities(Replay& replay, const Floats& leaves, const Floats& raw,
                        const Floats& sorted, std::size_t changes, double max_priority,
                        double beta) {
  Priorities& priorities = priorities_of(replay);
  const bool rank = priorities.kind() == PriorityKind::rank;
  if (leaves.size() != priorities.capacity() || raw.size() != (rank ? leaves.size() : 0)) {
    throw std::invalid_argument("saved priorities must be those of the buffer");
  }
  const auto check = [](double value, double limit) {
    if (!(value >= 0.0 && value <= limit)) {
      throw std::invalid_argument("saved priorities must be finite and not negative");
    }
  };
  const double any = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < leaves.size(); ++i) check(leaves.data()[i], Priorities::kMaxLeaf);
  for (const Floats* values : {&raw, &sorted}) {
    for (std::size_t i = 0; i < values->size(); ++i) check(values->data()[i], any);
  }
  check(max_priority, any);
  check(beta, any);
  for (std::size_t slot = 0; slot < leaves.size(); ++slot) {
    const bool drawn = leaves.data()[slot] > 0.0F || (rank && raw.data()[slot] > 0.0F);
    if (drawn && !replay.streams().is_live(replay.streams().anchor_of_slot(slot))) {
      throw std::invalid_argument("saved priorities must be of steps in the buffer");
    }
  }
  if (rank) priorities.push(0, raw.size(), raw.data());
  priorities.set_leaves(0, leaves.size(), leaves.data());
  if (rank)
    priorities.set_order(
        {std::vector<float>(sorted.data(), sorted.data() + sorted.size()), changes});
  priorities.set_max_priority(max_priority);
  replay.set_beta(beta);
}

}  // namespace

void bind_engine(PyObject* handle) {
  nb::module_ module = nb::borrow<nb::module_>(handle);
  nb::class_<Replay>(module, "Engine", "The native replay buffer behind the public classes.")
      .def("__init__", construct, "fields"_a, "stream_rows"_a, "capacity"_a, "n_streams"_a,
           "seed"_a, "oversample"_a, "priorities"_a.none(), "folder"_a.none() = nb::none())
      .def_static("describe_folder", describe_folder, "fields"_a, "stream_rows"_a, "capacity"_a,
                  "n_streams"_a,
                  "(row_bytes, chunk_rows, max_chunks, commit words) of such a buffer's folder.")
      .def("__len__", [](Replay& self) { return self.streams().live(); })
      .def(
          "clear",
          [](Replay& self) {
            const std::lock_guard<RwLock> rows(self.rows_lock());
            const std::lock_guard<std::mutex> tree(self.tree_mutex());
            self.clear();
          },
          nb::call_guard<nb::gil_scoped_release>(), "Forgets all steps; ids go on.")
      .def("flush", &Replay::flush, nb::call_guard<nb::gil_scoped_release>(),
           "Waits until everything pushed is on the disk.")
      .def(
          "close",
          [](Replay& self, bool keep, const std::string& reason) {
            const std::lock_guard<RwLock> rows(self.rows_lock());
            const std::lock_guard<std::mutex> tree(self.tree_mutex());
            self.close(keep, reason);
          },
          "keep"_a, "reason"_a = "the buffer is closed", nb::call_guard<nb::gil_scoped_release>(),
          "Leaves the folder. The buffer is empty then, and later calls raise the reason.")
      .def_prop_ro("damage", &Replay::damage, "What was left out of a repaired folder.")
      .def_prop_ro("lost_steps", &Replay::lost_steps, "How many steps that cost.")
      .def("stats", stats, "Counters and sizes.")
      .def_prop_rw("beta", &Replay::beta, &Replay::set_beta)
      .def_prop_ro("max_priority", [](Replay& self) { return priorities_of(self).max_priority(); })
      .def(
          "leaf_sums",
          [](Replay& self) {
            Priorities& priorities = priorities_of(self);
            const nb::gil_scoped_release release;
            const std::lock_guard<std::mutex> tree(self.tree_mutex());
            return std::make_tuple(priorities.total(), priorities.min_positive());
          },
          "The sum of all leaves and the smallest positive one, as the last draw saw them.")
      .def(
          "leaves",
          [](Replay& self, const Ids& ids) {
            Priorities& priorities = priorities_of(self);
            std::vector<float> found(ids.size());
            {
              const nb::gil_scoped_release release;
              const SharedRows rows(self);
              const std::lock_guard<std::mutex> tree(self.tree_mutex());
              const Streams& streams = self.streams();
              for (std::size_t i = 0; i < ids.size(); ++i) {
                const Anchor anchor = streams.anchor(ids.data()[i]);
                found[i] = streams.is_live(anchor) ? priorities.leaf(streams.slot(anchor)) : 0.0F;
              }
            }
            return to_numpy(std::move(found));
          },
          "ids"_a, "The leaves of steps, 0 for those that are not in the buffer any more.")
      .def_prop_ro("slots", [](Replay& self) { return self.store().slots(); })
      .def_prop_ro("is_full", &Replay::is_full)
      .def_prop_ro("slots_per_stream",
                   [](Replay& self) { return self.streams().slots_per_stream(); })
      .def(
          "ids",
          [](Replay& self) {
            std::vector<std::uint64_t> found;
            {
              const nb::gil_scoped_release release;
              const SharedRows rows(self);
              found = self.ids(View{});
            }
            return to_numpy(std::move(found));
          },
          "The ids of all steps, oldest first within a stream.")
      .def(
          "alive",
          [](Replay& self, const Ids& ids) {
            std::vector<std::uint8_t> found(ids.size());
            {
              const nb::gil_scoped_release release;
              const SharedRows rows(self);
              for (std::size_t i = 0; i < ids.size(); ++i) {
                found[i] = self.streams().is_live(self.streams().anchor(ids.data()[i]));
              }
            }
            return to_numpy(std::move(found));
          },
          "ids"_a, "Which ids are still in the buffer.")
      .def(
          "next_call", [](Replay& self) { return self.counters().calls().fetch_add(1) + 1; },
          "Moves the buffer's own generator on, for draws made in Python.")
      .def("choose_goals", choose_hindsight_goals, "ids"_a, "strategy"_a, "ratio"_a,
           "seed"_a.none())
      .def(
          "lock_rows", [](Replay& self) { self.rows_lock().lock_shared(); },
          nb::call_guard<nb::gil_scoped_release>(), "Keeps writers out until unlock_rows.")
      .def("unlock_rows", [](Replay& self) { self.rows_lock().unlock_shared(); })
      .def(
          "column_bytes",
          [](Replay& self, std::size_t field) {
            const bool stored =
                field < self.schema().fields.size() && self.store().is_stored(field);
            return stored ? self.store().column(field).bytes : std::size_t{0};
          },
          "field"_a, "Bytes per slot of a stored field, 0 when it is not stored.")
      .def(
          "read_column",
          [](Replay& self, std::size_t field, std::size_t first, std::size_t count,
             const Bytes& memory) {
            check_bytes(self, field, count, memory.size());
            copy_column(self, field, first, count, memory.data(), false);
          },
          "field"_a, "first"_a, "count"_a, "memory"_a)
      .def(
          "write_column",
          [](Replay& self, std::size_t field, std::size_t first, std::size_t count,
             const Bytes& memory) {
            check_bytes(self, field, count, memory.size());
            copy_column(self, field, first, count, memory.data(), true);
          },
          "field"_a, "first"_a, "count"_a, "memory"_a)
      .def("heads", heads)
      .def("bitmaps",
           [](Replay& self) {
             nb::list found;
             for (const Bits* bits : self.streams().bitmaps()) {
               std::vector<std::uint8_t> bytes(bits->words().size() * sizeof(std::uint64_t));
               std::memcpy(bytes.data(), bits->words().data(), bytes.size());
               found.append(to_numpy(std::move(bytes)));
             }
             return found;
           })
      .def("restore_heads", restore_heads, "heads"_a, "bitmaps"_a)
      .def("counters",
           [](Replay& self) {
             const ReplayCounters& c = self.counters();
             return std::vector<std::uint64_t>{c.pushed().load(), c.sampled().load(),
                                               c.sampled_age().load(), c.stale_updates().load(),
                                               c.calls().load()};
           })
      .def(
          "restore_counters",
          [](Replay& self, const std::vector<std::uint64_t>& saved) {
            if (saved.size() != 5)
              throw std::invalid_argument("saved counters must be five numbers");
            ReplayCounters& c = self.counters();
            c.pushed() = saved[0];
            c.sampled() = saved[1];
            c.sampled_age() = saved[2];
            c.stale_updates() = saved[3];
            c.calls() = saved[4];
          },
          "counters"_a)
      .def("save_priorities", save_priorities)
      .def("restore_priorities", restore_priorities, "leaves"_a, "raw"_a, "sorted"_a, "changes"_a,
           "max_priority"_a, "beta"_a);
  module.def(
      "permuted",
      [](std::uint64_t n, std::uint64_t seed, std::uint64_t begin, std::uint64_t end) {
        return to_numpy(permuted(n, seed, begin, end));
      },
      "n"_a, "seed"_a, "begin"_a, "end"_a,
      "Entries begin to end of a seeded permutation of n numbers.");
}

}  // namespace sharpwave::bind
