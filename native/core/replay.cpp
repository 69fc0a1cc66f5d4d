#include "core/replay.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace sharpwave {
namespace {

constexpr double kDiskCost = 1e6;  // of a row that may have to come from the disk, nanoseconds

ReplayOptions validated(ReplayOptions options) {
  options.schema.validate();
  if (options.capacity == 0) throw std::invalid_argument("capacity must be at least 1, got 0");
  if (options.n_streams > options.capacity) {
    throw std::invalid_argument("capacity must be at least n_envs, " +
                                std::to_string(options.n_streams) + ", got " +
                                std::to_string(options.capacity));
  }
  if (options.n_streams >= (std::size_t{1} << 32)) {
    throw std::invalid_argument("n_envs must be less than 2**32");
  }
  if (options.layout == Layout::stream) {
    if (options.n_streams == 0) throw std::invalid_argument("stream rows need n_envs");
    for (const Field& field : options.schema.fields) {
      if (field.role != Role::obs) continue;
      const bool has_next = std::any_of(
          options.schema.fields.begin(), options.schema.fields.end(), [&](const Field& other) {
            return other.role == Role::next_obs &&
                   &options.schema.fields[static_cast<std::size_t>(other.twin)] == &field;
          });
      if (!has_next) {
        throw std::invalid_argument("stream rows need a next observation for field '" + field.name +
                                    "'");
      }
    }
    // A step and the next observation that is stored apart from it must fit beside each other.
    const auto stack = static_cast<std::size_t>(options.schema.max_stack());
    if (options.capacity / options.n_streams < stack) {
      throw std::invalid_argument(
          "capacity must be at least " + std::to_string(stack * options.n_streams) +
          ", a stack of frames for every environment, got " + std::to_string(options.capacity));
    }
  } else if (options.schema.max_stack() > 1) {
    throw std::invalid_argument("frame stacks need stream rows: pass n_envs");
  }
  if (options.capacity > (std::size_t{1} << 48)) throw std::bad_alloc();
  return options;
}

// Every stream holds capacity / n_streams steps; the stream layout adds the pending observation and
// the older frames of the oldest stack.
std::size_t slots_per_stream(const ReplayOptions& options) {
  const std::size_t streams = std::max<std::size_t>(options.n_streams, 1);
  const std::size_t steps = options.capacity / streams;
  if (options.layout == Layout::transition) return steps;
  return steps + static_cast<std::size_t>(options.schema.max_stack());
}

}  // namespace

FolderOptions choose_columns(const ReplayOptions& given) {
  const ReplayOptions options = validated(given);
  FolderOptions columns;
  const std::size_t kept = slots_per_stream(options);
  // A push takes room for the slots that it may need, at once.
  const auto least = 2 * static_cast<std::size_t>(options.schema.max_stack());
  columns.row_bytes = choose_row_bytes(RecordLayout(options.schema, options.layout).bytes);
  columns.chunk_rows = choose_chunk_rows(columns.row_bytes, kept);
  if (columns.chunk_rows < least) {
    columns.chunk_rows *= (least + columns.chunk_rows - 1) / columns.chunk_rows;
  }
  // The kept rows may begin and end inside of a chunk, and a batch goes before its oldest are gone.
  columns.max_chunks = (kept + columns.chunk_rows - 1) / columns.chunk_rows + 2;
  return columns;
}

namespace {

std::unique_ptr<ReplayFolder> make_folder(const ReplayOptions& options) {
  if (!options.folder) return nullptr;
  const FolderOptions& given = *options.folder;
  const std::size_t kept = slots_per_stream(options);
  if (given.row_bytes < RecordLayout(options.schema, options.layout).bytes ||
      given.chunk_rows < 2 * static_cast<std::size_t>(options.schema.max_stack()) ||
      given.max_chunks < (kept + given.chunk_rows - 1) / given.chunk_rows + 2) {
    throw std::invalid_argument("the columns of the folder must hold rows of the schema");
  }
  ReplayFolder::Shape shape;
  shape.n_streams = std::max<std::size_t>(options.n_streams, 1);
  shape.marks = options.n_streams > 0;
  shape.priorities = options.priorities.has_value();
  shape.pending = options.layout == Layout::stream;
  return std::make_unique<ReplayFolder>(given, shape);
}

RowStore make_store(const ReplayOptions& options, const ReplayFolder* folder) {
  const std::size_t streams = std::max<std::size_t>(options.n_streams, 1);
  if (folder == nullptr) {
    return RowStore(options.schema, options.layout, slots_per_stream(options) * streams);
  }
  return RowStore(RecordLayout(options.schema, options.layout), folder->options().slots() * streams,
                  folder->options().row_bytes, folder->base());
}

}  // namespace

void ReplayCounters::move_home() {
  for (std::size_t i = 0; i < kCount; ++i) own_[i].store(words_[i].load());
  words_ = own_.data();
}

Replay::Replay(ReplayOptions options)
    : options_(validated(std::move(options))),
      folder_(make_folder(options_)),
      store_(make_store(options_, folder_.get())),
      streams_(std::max<std::size_t>(options_.n_streams, 1),
               folder_ ? options_.folder->slots() : slots_per_stream(options_),
               options_.layout == Layout::stream
                   ? static_cast<std::size_t>(options_.schema.max_stack()) - 1
                   : 0,
               options_.n_streams > 0, slots_per_stream(options_)),
      writer_(options_.schema, options_.layout, &store_, &streams_) {
  if (options_.priorities) {
    priorities_.emplace(store_.slots(), options_.priorities->kind, options_.priorities->alpha);
    beta_ = options_.priorities->beta;
  }
  if (folder_) open_folder();
}

void Replay::push(std::size_t n, const Source* sources, const std::uint32_t* streams,
                  const float* priorities) {
  if (folder_) {
    push_durably(n, sources, streams, priorities);
  } else if (streams_.tracked()) {
    push_rows(0, n, sources, streams, priorities);
  } else {
    push_unordered(n, sources, priorities);
  }
}

void Replay::push_unordered(std::size_t n, const Source* sources, const float* priorities) {
  if (!folder_) count_pushed(n);
  const std::uint64_t floor = streams_.head(0).floor;
  const std::size_t first = writer_.push_block(sources, n);
  if (!priorities_) return;
  const std::size_t slots = store_.slots();
  std::size_t row = n > slots ? n - slots : 0;
  while (row < n) {  // a range of slots at a time: the ring wraps at most once
    const std::size_t slot = (first + row) % slots;
    const std::size_t count = std::min(n - row, slots - slot);
    priorities_->push(slot, count, priorities == nullptr ? nullptr : priorities + row);
    row += count;
  }
  // Where there are more slots than steps, those that left are not overwritten by those that came.
  if (streams_.kept() < slots) remove_priorities(floor, streams_.head(0).floor);
}

void Replay::remove_priorities(std::uint64_t begin, std::uint64_t end) {
  const std::size_t slots = store_.slots();
  while (begin < end) {
    const std::size_t slot = static_cast<std::size_t>(begin % slots);
    const std::uint64_t count = std::min<std::uint64_t>(end - begin, slots - slot);
    priorities_->remove(slot, static_cast<std::size_t>(count));
    begin += count;
  }
}

void Replay::push_rows(std::size_t begin, std::size_t end, const Source* sources,
                       const std::uint32_t* streams, const float* priorities) {
  if (!folder_) count_pushed(end - begin);
  const auto evict = [&](std::size_t slot) {
    if (priorities_) priorities_->remove(slot);
  };
  const auto count = static_cast<std::uint32_t>(streams_.count());
  auto stream = static_cast<std::uint32_t>(begin % count);
  for (std::size_t row = begin; row < end; ++row) {
    const std::uint32_t target = streams != nullptr ? streams[row] : stream;
    const std::uint64_t old_top = streams_.head(target).top;
    const Anchor anchor = writer_.push(target, sources, row, evict);
    if (priorities_) {
      priorities_->push(streams_.slot(anchor), 1,
                        priorities == nullptr ? nullptr : priorities + row);
    }
    if (folder_) mirror_marks(target, old_top);
    if (++stream == count) stream = 0;
  }
}

void Replay::count_pushed(std::size_t n) {
  // Pushes are alone under the exclusive lock: no atomic addition is needed.
  std::atomic<std::uint64_t>& pushed = counters_.pushed();
  pushed.store(pushed.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

void Replay::clear() {
  if (folder_) folder_->require_writer();
  streams_.clear();
  if (priorities_) priorities_->clear();
  if (folder_) commit_clear();
}

void Replay::read(const View& view, const std::vector<Anchor>& anchors, Slots* slots,
                  const BatchOut& out) {
  resolve(view, options_.schema, options_.layout, streams_, anchors, slots);
  if (folder_) announce(view, *slots);
  const bool is_watched = folder_ && may_be_rewritten();
  std::uint64_t rewrites = 0;
  do {
    if (is_watched) rewrites = folder_->journal().settled();
    emit(view, options_.schema, options_.layout, store_, streams_, anchors, *slots, out);
  } while (is_watched && !folder_->journal().is_settled(rewrites));
}

void Replay::find(const std::uint64_t* ids, std::size_t n, std::vector<Anchor>* anchors) const {
  anchors->resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Anchor anchor = streams_.anchor(ids[i]);
    if (!streams_.is_live(anchor)) {
      throw std::out_of_range("indices must be of steps in the buffer, got " +
                              std::to_string(ids[i]));
    }
    (*anchors)[i] = anchor;
  }
}

std::vector<std::uint64_t> Replay::ids(const View& view) const {
  std::vector<std::uint64_t> found;
  found.reserve(streams_.live());
  for (std::uint32_t stream = 0; stream < streams_.count(); ++stream) {
    const Streams::Head& head = streams_.head(stream);
    for (std::uint64_t seq = head.floor; seq < head.top; ++seq) {
      const Anchor anchor{seq, stream};
      if (streams_.is_live(anchor) && accepts(view, streams_, anchor)) {
        found.push_back(streams_.id(anchor));
      }
    }
  }
  return found;
}

std::size_t Replay::find_written(const std::uint64_t* ids, std::size_t n,
                                 std::vector<Anchor>* anchors,
                                 std::vector<std::size_t>* rows) const {
  anchors->clear();
  rows->clear();
  std::size_t stale = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (ids[i] == kNoStep) continue;
    const Anchor anchor = streams_.anchor(ids[i]);
    if (anchor.seq < streams_.head(anchor.stream).floor) {  // overwritten since the draw
      ++stale;
      continue;
    }
    if (!streams_.is_live(anchor)) {
      throw std::out_of_range("indices must be of steps that were pushed, got " +
                              std::to_string(ids[i]));
    }
    anchors->push_back(anchor);
    rows->push_back(i);
  }
  return stale;
}

std::size_t Replay::rewrite(const std::uint64_t* ids, std::size_t n,
                            const std::vector<std::size_t>& fields, const Source* sources) {
  if (folder_) folder_->require_writer();
  static thread_local std::vector<Anchor> anchors;
  static thread_local std::vector<std::size_t> rows;
  const std::size_t stale = find_written(ids, n, &anchors, &rows);
  if (folder_) {
    rewrite_durably(anchors, rows, fields, sources);
  } else {
    for (std::size_t i = 0; i < anchors.size(); ++i) {
      writer_.rewrite(streams_.slot(anchors[i]), fields, sources, rows[i]);
    }
  }
  counters_.stale_updates().fetch_add(stale, std::memory_order_relaxed);
  return stale;
}

std::size_t Replay::update_priorities(const std::uint64_t* ids, const float* priorities,
                                      std::size_t n) {
  if (folder_) folder_->require_writer();
  static thread_local std::vector<Anchor> anchors;
  static thread_local std::vector<std::size_t> rows;
  static thread_local std::vector<std::uint64_t> slots;
  static thread_local std::vector<float> kept;
  const std::size_t stale = find_written(ids, n, &anchors, &rows);
  slots.clear();
  kept.clear();
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    slots.push_back(streams_.slot(anchors[i]));
    kept.push_back(priorities[rows[i]]);
  }
  priorities_->update(slots.data(), kept.data(), slots.size());
  counters_.stale_updates().fetch_add(stale, std::memory_order_relaxed);
  if (folder_) commit_priorities();
  return stale;
}

bool Replay::is_full() const {
  for (std::size_t stream = 0; stream < streams_.count(); ++stream) {
    const Streams::Head& head = streams_.head(stream);
    if (head.top - head.floor < streams_.kept() - streams_.lead()) return false;
  }
  return true;
}

std::size_t Replay::bytes() const {
  return store_.bytes() + streams_.bytes() + (priorities_ ? priorities_->bytes() : 0);
}

double Replay::read_cost(std::size_t rows) const {
  // About one cache line per 10 ns from memory.
  const double cost =
      static_cast<double>(rows) * (20.0 + static_cast<double>(store_.stride()) / 6.0);
  return folder_ && pages_missed_.load(std::memory_order_relaxed) ? cost + kDiskCost : cost;
}

}  // namespace sharpwave
