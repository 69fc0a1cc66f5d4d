#include "core/disk/replay_folder.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/disk/checksum.hpp"
#include "core/disk/process.hpp"

namespace sharpwave {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

std::size_t range_bytes(const FolderOptions& options, std::size_t n_streams) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(options.row_bytes, options.chunk_rows, &bytes) ||
      __builtin_mul_overflow(bytes, options.max_chunks, &bytes) ||
      __builtin_mul_overflow(bytes, n_streams, &bytes)) {
    throw std::bad_alloc();
  }
  return bytes;
}

// A ring that goes round in less need not be written to the disk every time.
constexpr std::chrono::seconds kBetweenSaves{1};
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

ChunkLayout column_layout(const FolderOptions& options, std::size_t stream) {
  return {options.path + "/columns", "rows-" + std::to_string(stream),
          options.row_bytes,         options.chunk_rows,
          options.max_chunks,        true,
          options.identity};
}

}  // namespace

ReplayFolder::ReplayFolder(FolderOptions options, Shape shape)
    : options_(std::move(options)),
      shape_(shape),
      generation_(process_generation()),
      state_(options_.path + "/state", n_words(shape.n_streams, options_.identity),
             options_.access),
      log_(options_.identity == 0 ? 0 : n_words(shape.n_streams, 0)),
      journal_(options_.path + "/update.journal", options_.access),
      range_(range_bytes(options_, shape.n_streams)),
      residency_(range_.data(), range_.bytes(), options_.resident_bytes) {
  recover_commit();
  check_words();
  const std::size_t slots = options_.slots() * shape_.n_streams;
  if (shape_.marks) open_mirror("marks", slots, &marks_);
  if (shape_.priorities) open_mirror("priorities", slots * sizeof(float), &priorities_);
  if (!is_reader()) state_.set(kPrioritiesChecksum, 0);
  const std::size_t stream_bytes = options_.slots() * options_.row_bytes;
  for (std::size_t stream = 0; stream < shape_.n_streams; ++stream) {
    columns_.push_back(std::make_unique<Column>(column_layout(options_, stream), options_.access,
                                                range_.data() + stream * stream_bytes));
    const std::uint64_t flushed = state_.saved_words()[kTops + stream];
    columns_.back()->chunks.set_flushed(
        {flushed - (shape_.pending && flushed > 0 ? 1 : 0), rolled_back()});
  }
}

ReplayFolder::~ReplayFolder() {
  try {
    close(true, "");
  } catch (const std::exception&) {  // the rows are with the system; there is nobody to tell
  }
}

std::uint64_t ReplayFolder::Mirror::checksum() const {
  return crc32c(0, range.data(), bytes) | std::uint64_t{1} << 32;
}

void ReplayFolder::check_words() {
  bool sound = true;
  for (std::uint32_t stream = 0; stream < shape_.n_streams; ++stream) {
    // No top goes back behind its copy, which has a checksum.
    const std::uint64_t saved = state_.saved_words()[kTops + stream];
    if (top(stream) < saved && options_.repair && !is_reader()) commit(stream, saved);
    sound = sound && top(stream) >= saved;
    sound = sound && cleared(stream) <= top(stream) && top(stream) < (std::uint64_t{1} << 62);
  }
  for (const double value : {number(kMaxPriority), number(kBeta)}) {
    sound = sound && (!shape_.priorities || (std::isfinite(value) && value >= 0.0));
  }
  if (!sound) throw IoError("the commit state is damaged", path_of("state"));
}

void ReplayFolder::commit(const std::vector<Change>& changes) {
  if (log_ == 0 || changes.size() == 1) {
    for (const Change& change : changes) state_.set(change.word, change.value);
    return;
  }
  const std::uint64_t count = state_.get(log_);
  for (std::size_t i = 0; i < changes.size(); ++i) {
    state_.set(log_ + 2 + 2 * i, changes[i].word);
    state_.set(log_ + 3 + 2 * i, changes[i].value);
  }
  state_.set(log_ + 1, changes.size());
  state_.set(log_, count + 1);  // this is the commit: whoever comes later makes the changes, too
  for (const Change& change : changes) state_.set(change.word, change.value);
  state_.set(log_, count + 2);
}

void ReplayFolder::recover_commit() {
  if (log_ == 0 || state_.get(log_) % 2 == 0) return;
  const std::uint64_t n = state_.get(log_ + 1);
  bool sound = n <= shape_.n_streams + 2;
  for (std::size_t i = 0; sound && i < n; ++i) sound = state_.get(log_ + 2 + 2 * i) < log_;
  if (!sound) throw IoError("the commit state is damaged", path_of("state"));
  if (is_reader()) return;  // reads them where they are
  for (std::size_t i = 0; i < n; ++i) {
    state_.set(state_.get(log_ + 2 + 2 * i), state_.get(log_ + 3 + 2 * i));
  }
  state_.set(log_, state_.get(log_) + 1);
}

std::uint64_t ReplayFolder::read_committed(std::size_t word) const {
  while (true) {
    const std::uint64_t count = state_.get(log_);
    std::uint64_t value = state_.get(word);
    if (count % 2 == 1) {
      const std::uint64_t n = std::min<std::uint64_t>(state_.get(log_ + 1), shape_.n_streams + 2);
      for (std::size_t i = 0; i < n; ++i) {
        if (state_.get(log_ + 2 + 2 * i) == word) value = state_.get(log_ + 3 + 2 * i);
      }
    }
    if (state_.get(log_) == count) return value;
  }
}

std::vector<std::uint64_t> ReplayFolder::committed_words() const {
  while (log_ != 0) {
    const std::uint64_t count = state_.get(log_);
    std::vector<std::uint64_t> words = state_.words();
    if (count % 2 == 0 && state_.get(log_) == count) return words;
    std::this_thread::yield();
  }
  return state_.words();
}

void ReplayFolder::open_mirror(const char* name, std::size_t bytes, Mirror* mirror) {
  bool is_new = !is_reader();
  for (std::uint32_t stream = 0; stream < shape_.n_streams; ++stream) {
    is_new = is_new && top(stream) == 0;
  }
  mirror->bytes = bytes;
  try {
    map_mirror(name, mirror);
  } catch (const IoError&) {
    if (!is_new && (is_reader() || !options_.repair)) throw;
    remove_file(path_of(name));
    mirror->file = File::create(path_of(name));
    mirror->file.allocate(0, whole_pages(bytes));
    sync_folder(options_.path);
    mirror->lost = !is_new;
    state_.set(kPrioritiesChecksum, 0);
    map_mirror(name, mirror);
  }
}

void ReplayFolder::map_mirror(const char* name, Mirror* mirror) {
  const std::string path = path_of(name);
  mirror->file = File(path, options_.access);
  if (mirror->file.size() < mirror->bytes) throw IoError("the file is truncated", path);
  if (!is_reader()) mirror->file.fill_holes(0, mirror->bytes);
  mirror->range = AddressRange(whole_pages(mirror->bytes));
  map_file(mirror->file, options_.access, mirror->range.data(), mirror->range.bytes());
  if (is_reader()) check_readable(mirror->file, mirror->range.data(), mirror->range.bytes());
  if (mirror != &priorities_ || rolled_back()) return;  // it may be newer than the words
  const std::uint64_t expected = state_.get(kPrioritiesChecksum);
  if (expected == 0 || expected == mirror->checksum()) return;
  // Looked at again: a writer that takes over forgets the checksum before it changes a priority.
  if (state_.get(kPrioritiesChecksum) != 0) throw IoError("the file is corrupt", path);
}

bool ReplayFolder::is_mine() const { return generation_ == process_generation(); }

void ReplayFolder::require_writer() const {
  require_open();
  if (is_reader()) throw IoError("the buffer was opened read-only", options_.path, EROFS);
  if (!is_mine()) {
    throw IoError("a forked process must not write; open it there, after its writer closed",
                  options_.path, EPERM);
  }
}

double ReplayFolder::number(Word word) const { return std::bit_cast<double>(get(word)); }

void ReplayFolder::set_number(Word word, double value) {
  state_.set(word, std::bit_cast<std::uint64_t>(value));
}

std::vector<ChunkCheck> ReplayFolder::map_rows(std::uint32_t stream, std::uint64_t begin,
                                               std::uint64_t end, bool verify) {
  Column& column = *columns_[stream];
  std::vector<ChunkCheck> damage;
  drop(&column, begin);
  column.chunks.open(begin, end, &damage);
  const std::uint64_t rows = options_.chunk_rows;
  const auto is_known = [&](std::uint64_t chunk) {
    return std::any_of(damage.begin(), damage.end(),
                       [&](const ChunkCheck& check) { return check.chunk == chunk; });
  };
  for (std::uint64_t chunk = begin / rows; verify && chunk * rows < end; ++chunk) {
    const ChunkCheck check = column.chunks.verify(chunk);
    if (check.verdict == ChunkCheck::Verdict::corrupt && !is_known(chunk)) damage.push_back(check);
  }
  if (is_reader()) return damage;
  // What a process that died made ahead, or did not come to remove.
  for (const std::uint64_t chunk : column.chunks.on_disk()) {
    if ((chunk + 1) * rows <= begin || chunk * rows >= end) {
      remove_file(column.chunks.layout().path(chunk));
    }
  }
  column.chunks_with_room = column.chunks_asked_for = (end + rows - 1) / rows;
  column.synced = begin;
  // Full chunks that were sealed need not be read again, but a row that is pending will change.
  const std::uint64_t stable = end - (shape_.pending && end > 0 ? 1 : 0);
  if (stable < end && damage.empty()) {
    const ChunkCheck check = column.chunks.unseal(stable);
    if (check.verdict == ChunkCheck::Verdict::corrupt) damage.push_back(check);
  }
  if (!damage.empty()) return damage;
  std::uint64_t chunk = stable / rows;
  const auto covered = [&] {
    return column.chunks.is_mapped(chunk) ? column.chunks.sealed_rows(chunk) : 0;
  };
  column.sealed = chunk * rows + covered();
  while (chunk * rows > begin && (--chunk, covered()) < rows) {
    column.sealed = chunk * rows + covered();
  }
  for (chunk = begin / rows; chunk * rows < column.sealed; ++chunk) {
    if (column.chunks.is_mapped(chunk) && column.chunks.is_changed(chunk)) {
      column.changed.insert(chunk);
    }
  }
  return damage;
}

void ReplayFolder::settle_tail() noexcept {
  try {
    for (std::uint32_t stream = 0; stream < shape_.n_streams; ++stream) {
      if (top(stream) == state_.saved_words()[kTops + stream]) continue;
      save(false);
      return;
    }
  } catch (const std::exception&) {  // left for the next flush to meet
  }
}

std::string ReplayFolder::describe(std::uint32_t stream, const ChunkCheck& check) const {
  using Verdict = ChunkCheck::Verdict;
  const char* what = check.verdict == Verdict::missing     ? " is missing"
                     : check.verdict == Verdict::truncated ? " is truncated"
                                                           : " is corrupt";
  return columns_[stream]->chunks.layout().path(check.chunk) + what;
}

std::vector<std::string> ReplayFolder::drop(Column* column, std::uint64_t oldest) {
  std::vector<std::string> files;
  const std::uint64_t rows = options_.chunk_rows;
  const std::uint64_t begin = std::max(column->dropped, oldest / rows * rows);
  const std::size_t chunk_bytes = rows * options_.row_bytes;
  const std::uint64_t places =
      std::min<std::uint64_t>((begin - column->dropped) / rows, options_.max_chunks);
  for (std::uint64_t i = 1; i <= places; ++i) {
    residency_.forget(column->chunks.row(begin - i * rows), chunk_bytes);
  }
  column->chunks.drop_before(begin, &files);
  column->dropped = begin;
  column->changed.erase(column->changed.begin(), column->changed.lower_bound(begin / rows));
  return files;
}

void ReplayFolder::reserve_more(std::uint32_t stream, std::uint64_t end, std::uint64_t oldest) {
  Column& column = *columns_[stream];
  const std::uint64_t rows = options_.chunk_rows;
  std::vector<std::string> files;
  {
    // A chunk that is just being sealed is dropped another time, unless its place is needed now.
    std::unique_lock<std::mutex> lock(mapping_mutex_, std::defer_lock);
    if (end > column.dropped + options_.slots()) {
      lock.lock();
    } else {
      (void)lock.try_lock();
    }
    if (lock.owns_lock()) files = drop(&column, oldest);
  }
  if (!files.empty()) {
    caretaker_.post([files = std::move(files)] {
      for (const std::string& file : files) {
        try {
          remove_file(file);
        } catch (const IoError&) {  // found again, and removed, when the folder is opened
        }
      }
    });
  }
  std::uint64_t begin = column.chunks.reserved();
  try {
    column.chunks.reserve(end);
  } catch (const IoError&) {
    caretaker_.drain();  // files that are about to go may make room
    column.chunks.reserve(end);
  }
  reserve_ahead(&column, end);
  make_room((column.chunks.reserved() - begin) * options_.row_bytes);
  while (begin < column.chunks.reserved()) {
    const std::uint64_t stop = std::min((begin / rows + 1) * rows, column.chunks.reserved());
    std::byte* data = column.chunks.row(begin);
    const std::size_t bytes = (stop - begin) * options_.row_bytes;
    residency_.add(data, bytes);
    caretaker_.post([data, bytes] { populate(data, bytes); });
    begin = stop;
  }
  look_after(&column, column.chunks.reserved());
}

void ReplayFolder::reserve_ahead(Column* column, std::uint64_t end) {
  const std::uint64_t rows = options_.chunk_rows;
  const std::uint64_t ahead = std::min<std::uint64_t>(rows / 4, kPieceBytes / options_.row_bytes);
  try {
    column->chunks.reserve(std::min(end + ahead, column->dropped + options_.slots()));
  } catch (const IoError&) {  // there is enough for now
  }
  const std::uint64_t reserved = column->chunks.reserved();
  column->ready = std::max(end, reserved - std::min(reserved, ahead / 2));
}

void ReplayFolder::look_after(Column* column, std::uint64_t end) {
  const std::uint64_t rows = options_.chunk_rows;
  const std::uint64_t with_room = (end + rows - 1) / rows;
  // Small buffers never come to need a next chunk: it is made when half of this one is used.
  const std::uint64_t wanted = with_room + (2 * (end - (with_room - 1) * rows) > rows ? 1 : 0);
  if (wanted > with_room && wanted > column->chunks_asked_for) {
    column->chunks_asked_for = wanted;
    caretaker_.post([column, end] { column->chunks.prepare(end); });
  }
  if (with_room == column->chunks_with_room) return;
  column->chunks_with_room = with_room;
  if (with_room == 1 || options_.power || save_asked_.exchange(true)) return;
  saver_.post([this] {
    wait_for_next_save();
    const std::lock_guard<std::mutex> lock(save_mutex_);
    save_asked_ = false;
    try {
      save(false);
    } catch (const std::exception&) {
      background_error_ = std::current_exception();
    }
  });
}

void ReplayFolder::wait_for_next_save() {
  // Not a condition variable: a forked child could not be rid of one that a thread waits on.
  while (!leaving_ && std::chrono::steady_clock::now() < next_save_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  next_save_ = std::chrono::steady_clock::now() + kBetweenSaves;
}

void ReplayFolder::flush() {
  if (is_reader()) return;
  require_writer();
  if (!options_.power) caretaker_.drain();
  const std::lock_guard<std::mutex> lock(save_mutex_);
  require_writer();
  const std::exception_ptr earlier = std::exchange(background_error_, nullptr);
  seal_changed();
  save(false);
  if (earlier != nullptr) std::rethrow_exception(earlier);
}

void ReplayFolder::save(bool final) {
  const std::vector<std::uint64_t> words = committed_words();
  for (std::size_t stream = 0; stream < shape_.n_streams; ++stream) {
    Column& column = *columns_[stream];
    const std::uint64_t end = words[kTops + stream];
    const std::uint64_t stable = end - (shape_.pending && !final && end > 0 ? 1 : 0);
    if (column.synced >= end && column.sealed >= stable) continue;
    seal(&column, stable);
    column.synced = std::min(column.synced, end - 1);  // at least the trailer is new
    sync(&column, end);
  }
  for (Mirror* mirror : {&marks_, &priorities_}) {
    if (mirror->range.bytes() > 0) mirror->file.sync();
  }
  state_.save(words);
}

void ReplayFolder::sync(Column* column, std::uint64_t end) {
  const std::uint64_t rows = options_.chunk_rows;
  while (column->synced < end) {
    const std::uint64_t stop = std::min(end, (column->synced / rows + 1) * rows);
    try {
      column->chunks.sync(column->synced, stop);
    } catch (const IoError& error) {
      const std::lock_guard<std::mutex> mapping(mapping_mutex_);
      if (error.code != ENOENT || stop > column->dropped) throw;
    }
    column->synced = stop;
  }
}

void ReplayFolder::close(bool keep, const std::string& reason) {
  if (closed_) return;
  // In a forked child locks may be held for ever, by threads that stayed in the parent.
  std::unique_lock<std::mutex> lock(save_mutex_, std::defer_lock);
  if (is_mine()) {
    leaving_ = true;
    saver_.drain();
    caretaker_.drain();
    lock.lock();
  }
  why_closed_ = reason;
  closed_ = true;
  std::exception_ptr error = keep ? background_error_ : nullptr;
  if (keep && open_ && is_mine() && !is_reader()) {
    try {
      if (priorities_.bytes > 0) state_.set(kPrioritiesChecksum, priorities_.checksum());
      seal_changed();
      save(true);
      for (std::uint32_t stream = 0; stream < shape_.n_streams; ++stream) {
        columns_[stream]->chunks.trim(top(stream));
      }
      state_.seal();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  }
  columns_.clear();
  range_ = AddressRange();
  marks_ = Mirror();
  priorities_ = Mirror();
  if (error != nullptr) std::rethrow_exception(error);
}

std::uint64_t ReplayFolder::disk_bytes() const {
  std::uint64_t bytes = marks_.range.bytes() + priorities_.range.bytes();
  for (const auto& column : columns_) bytes += column->chunks.disk_bytes();
  return bytes;
}

bool ReplayFolder::is_hot(std::size_t offset, std::size_t bytes) const {
  const std::size_t slots = options_.slots();
  const std::size_t begin = offset / options_.row_bytes;
  const std::size_t end = (offset + bytes - 1) / options_.row_bytes + 1;
  for (std::size_t stream = begin / slots; stream * slots < end; ++stream) {
    // Pages that are about to be written are hot, too.
    const std::uint64_t ahead = 2 * kPieceBytes / options_.row_bytes;
    const std::uint64_t newest = top(static_cast<std::uint32_t>(stream)) + ahead;
    const std::uint64_t hot = std::min<std::uint64_t>({options_.hot_rows + ahead, newest, slots});
    const std::size_t first = std::max(begin, stream * slots) - stream * slots;
    const std::size_t last = std::min(end, (stream + 1) * slots) - stream * slots;
    const auto hot_first = static_cast<std::size_t>((newest - hot) % slots);
    // Slots go round: is the one range's start in the other?
    if ((first + slots - hot_first) % slots < hot) return true;
    if (hot > 0 && (hot_first + slots - first) % slots < last - first) return true;
  }
  return false;
}

void ReplayFolder::make_room(std::size_t bytes) {
  if (!residency_.is_short_of(bytes)) return;
  residency_.release(
      bytes, [this](std::size_t offset, std::size_t count) { return is_hot(offset, count); });
}

}  // namespace sharpwave
