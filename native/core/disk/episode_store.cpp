#include "core/disk/episode_store.hpp"

#include <algorithm>
#include <limits>

#include "core/disk/process.hpp"

namespace sharpwave {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// The next row at which a chunk is half full, and the next one should be made, or full.
std::uint64_t next_due(std::uint64_t top, std::size_t chunk_rows) {
  const std::uint64_t within = top % chunk_rows;
  return top - within + (within < chunk_rows / 2 ? chunk_rows / 2 : chunk_rows);
}

}  // namespace

EpisodeStore::EpisodeStore(EpisodeOptions options, Access access, bool repairing)
    : options_(std::move(options)),
      access_(access),
      process_(process_generation()),
      state_(std::make_unique<CommitState>(options_.folder + "/state", kStateWords, access)) {
  const std::string columns = options_.folder + "/columns";
  const Snapshot& saved = state_->saved_words();
  const auto make_column = [&](const ColumnSpec& spec, Word flushed) {
    return std::make_unique<DiskColumn>(columns, spec, access, options_.identity,
                                        FlushedRows{saved[flushed], state_->rolled_back()});
  };
  for (const ColumnSpec& spec : options_.steps) steps_.push_back(make_column(spec, kStepsTop));
  for (const ColumnSpec& spec : options_.episodes) {
    episodes_.push_back(make_column(spec, kFinished));
  }
  episodes_.push_back(
      make_column({"_episodes", kIndexRowBytes, options_.index_chunk_rows}, kFinished));
  check_words(repairing && access == Access::write);
  if (access == Access::read) {
    lenient_ = repairing;
    refresh();
    if (lenient_) repaired_ = verify();
    return;
  }
  for (std::size_t word = 0; word < kVisible; ++word) visible_[word] = state_->get(word);
  written_ = state_->saved_words();
  // Until `recover` finds it by the episodes.
  visible_[kStepsFront] = std::min(written_[kStepsFront], visible(kStepsTop));
  open_columns(repairing);
  recover_update();
  if (repairing) repair();
  recover(repairing);
  settle_tail();
}

EpisodeStore::~EpisodeStore() {
  if (!is_writer() || process_ != process_generation()) return;
  try {
    close();
  } catch (const std::exception&) {  // what was committed stays committed
  }
}

// From the fronts of the copy on: files go only after it says so.
void EpisodeStore::open_columns(bool repairing) {
  std::vector<ChunkCheck> absent;
  std::vector<ChunkCheck>* const damage = repairing ? &absent : nullptr;
  for (const auto& column : steps_) {
    column->open(steps_front(), visible(kStepsTop), damage);
  }
  for (const auto& column : episodes_) {
    column->open(std::min(written_[kEpisodesFront], visible(kEpisodesTop)), visible(kEpisodesTop),
                 damage);
  }
}

void EpisodeStore::set_word(EpisodeRow* row, std::uint64_t length, EpisodeFlag flag) {
  const std::uint64_t word = length << 8 | static_cast<std::uint64_t>(flag);
  __atomic_store_n(&row->word, word, __ATOMIC_RELEASE);
}

void EpisodeStore::commit(Word word, std::uint64_t value) {
  visible_[word].store(value, std::memory_order_release);
  state_->set(word, value);
}

EpisodeRow* EpisodeStore::index_row(std::uint64_t episode) const {
  return reinterpret_cast<EpisodeRow*>(episodes_.back()->row(episode));
}

EpisodeRow EpisodeStore::read_row(std::uint64_t episode) const {
  const EpisodeRow* row = index_row(episode);
  const std::uint64_t word = __atomic_load_n(&row->word, __ATOMIC_ACQUIRE);
  return {row->start, word};
}

void EpisodeStore::recover(bool repairing) {
  recover_lanes(repairing);
  complete_ = 0;
  const std::uint64_t steps = steps_top();
  const std::uint64_t top = visible(kEpisodesTop);
  for (std::uint64_t id = visible(kEpisodesFront); id < top; ++id) {
    EpisodeRow* row = index_row(id);
    const bool is_open = row->flag() == EpisodeFlag::open;
    const std::uint64_t word = row->word;
    if (row->start < steps_front() || (is_open && (row->start >= steps || id + 1 < top))) {
      set_word(row, 0, EpisodeFlag::gone);  // damaged; without steps; a repair that was cut off
    } else if (is_open || !row->lies_in(0, steps)) {
      // Left open, or with steps that went with the loss of power.
      row->start = std::min(row->start, steps);
      const std::uint64_t length = steps - row->start;
      set_word(row, length, length > 0 ? EpisodeFlag::aborted : EpisodeFlag::gone);
    }
    if (row->word != word && id < written_[kFinished]) {
      DiskColumn& index = *episodes_.back();
      seal_again(&index, id / index.chunk_rows(), written_[kFinished]);
    }
    complete_ += row->flag() == EpisodeFlag::complete;
  }
  set_fronts(visible(kEpisodesFront));
  evict();
  take_care();
}

// What a writer that died had not come to seal. An error is left for the next flush to meet.
void EpisodeStore::settle_tail() noexcept {
  try {
    const Snapshot now = snapshot();
    if (now != written_) write_through(now);
  } catch (const std::exception&) {
  }
}

void EpisodeStore::check_no_open() const {
  if (has_open()) throw std::runtime_error("an episode is open already; advance_episode() ends it");
}

void EpisodeStore::check_writer() const {
  if (!is_writer()) throw std::runtime_error("the buffer is not open for writing");
  if (process_ != process_generation()) {
    throw std::runtime_error(
        "the buffer was opened for writing before this process was forked; a forked child cannot "
        "write");
  }
}

void EpisodeStore::check_room(std::uint64_t episodes) const {
  const std::uint64_t taken = options_.circular ? 0 : complete_;
  if (taken + episodes <= options_.max_episodes) return;
  const std::string limit = std::to_string(options_.max_episodes);
  if (options_.circular) {
    throw std::invalid_argument("episodes must be at most max_episodes, " + limit + ", got " +
                                std::to_string(episodes));
  }
  throw std::invalid_argument("the buffer is full: it has " + std::to_string(complete_) +
                              " of max_episodes " + limit + " episodes and needs " +
                              std::to_string(episodes) +
                              " more; clear() it, or make it with circular=True");
}

void EpisodeStore::make_room(std::uint64_t steps, std::uint64_t episodes) {
  const auto any_must_grow = [](const auto& columns, std::uint64_t end) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const auto& column) { return column->must_grow(end); });
  };
  if (any_must_grow(steps_, steps) || any_must_grow(episodes_, episodes)) {
    caretaker_.drain();
    const std::lock_guard<std::mutex> structure(structure_mutex_);
    const std::lock_guard<RwLock> mapping(mapping_lock_);
    for (const auto& column : steps_) {
      if (column->must_grow(steps)) column->grow(steps);
    }
    for (const auto& column : episodes_) {
      if (column->must_grow(episodes)) column->grow(episodes);
    }
  }
  const auto reserve = [&] {
    const std::lock_guard<std::mutex> structure(structure_mutex_);
    for (const auto& column : episodes_) column->reserve(episodes);
    std::uint64_t ready = kNever;
    for (const auto& column : steps_) {
      const std::uint64_t before = column->chunks().reserved();
      column->reserve(steps);
      const std::uint64_t after = column->chunks().reserved();
      ready = std::min(ready, after);
      if (after == before) continue;
      // Rows of the newest chunk lie one after another.
      const std::uint64_t first =
          std::max(before, (after - 1) / column->chunk_rows() * column->chunk_rows());
      caretaker_.post([data = column->row(first), bytes = (after - first) * column->row_bytes()] {
        populate(data, bytes);
      });
    }
    ready_ = ready;
  };
  try {
    reserve();
  } catch (const IoError&) {
    caretaker_.drain();  // files that are about to go may make room
    reserve();
  }
}

void EpisodeStore::begin(const Source* meta) {
  check_writer();
  check_no_open();
  check_room(1);
  const std::uint64_t id = visible(kEpisodesTop);
  make_room(steps_top(), id + 1);
  for (std::size_t i = 0; i + 1 < episodes_.size(); ++i) episodes_[i]->write(id, 1, meta[i]);
  index_row(id)->start = steps_top();
  set_word(index_row(id), 0, EpisodeFlag::open);
  open_ = true;
  open_start_ = steps_top();
  commit(kEpisodesTop, id + 1);
  if (options_.power) flush();
}

void EpisodeStore::append(std::size_t n, const Source* steps) {
  const std::uint64_t top = steps_top();
  const std::uint64_t end = top + n;
  check_length(end - open_start_);
  if (end > ready_) make_room(end, visible(kEpisodesTop));
  for (std::size_t i = 0; i < steps_.size(); ++i) steps_[i]->write(top, n, steps[i]);
  commit(kStepsTop, end);
  if (end >= due_) take_care();
  if (options_.power) flush();
}

void EpisodeStore::check_length(std::uint64_t length) const {
  if (length <= options_.max_timesteps) return;
  throw std::invalid_argument("an episode must have at most max_timesteps, " +
                              std::to_string(options_.max_timesteps) + ", steps, got " +
                              std::to_string(length));
}

void EpisodeStore::store_episode(std::size_t n, const Source* steps, const Source* meta) {
  check_writer();
  check_length(n);
  if (n == 0) throw std::invalid_argument("an episode must have at least one step, got none");
  check_no_open();
  check_room(1);
  make_room(steps_top() + n, visible(kEpisodesTop) + 1);  // nothing can fail after it
  begin(meta);
  append(n, steps);
  end(EpisodeFlag::complete);
}

void EpisodeStore::set_meta(std::size_t column, const std::byte* value) {
  check_writer();
  if (!open_) throw std::runtime_error("no episode is open");
  episodes_.at(column)->write(visible(kEpisodesTop) - 1, 1, {value, 0});
}

void EpisodeStore::end(EpisodeFlag flag) {
  check_writer();
  if (!has_open()) throw std::runtime_error("no episode is open");
  if (lanes_) {
    end_lanes(flag);
  } else {
    const std::uint64_t id = visible(kEpisodesTop) - 1;
    const std::uint64_t length = open_length();
    open_ = false;
    // Without steps it is no episode; but tops never go back, for readers have seen them.
    set_word(index_row(id), length, length > 0 ? flag : EpisodeFlag::gone);
    complete_ += length > 0 && flag == EpisodeFlag::complete;
  }
  evict();
  if (steps_top() >= due_) take_care();
  if (options_.power) flush();
}

void EpisodeStore::evict() {
  std::uint64_t front = visible(kEpisodesFront);
  if (!options_.circular || complete_ <= options_.max_episodes) return;
  while (complete_ > options_.max_episodes) {
    complete_ -= index_row(front++)->flag() == EpisodeFlag::complete;
  }
  set_fronts(front);
  const auto has_old = [](const auto& columns, std::uint64_t row) {
    return std::any_of(columns.begin(), columns.end(),
                       [&](const auto& column) { return column->has_old(row); });
  };
  if (has_old(steps_, steps_front()) || has_old(episodes_, front)) {
    post_tidy();
  }
}

// The word of the episodes comes first: `recover` finds the other by it.
void EpisodeStore::set_fronts(std::uint64_t front) {
  commit(kEpisodesFront, front);
  const std::uint64_t start = front < visible(kEpisodesTop) ? index_row(front)->start : steps_top();
  commit(kStepsFront, std::clamp(start, steps_front(), steps_top()));
}

void EpisodeStore::clear() {
  check_writer();
  check_no_open();
  set_fronts(visible(kEpisodesTop));
  complete_ = 0;
  flush();
}

void EpisodeStore::take_care() {
  const std::uint64_t top = steps_top();
  bool full = false;
  due_ = kNever;
  for (const auto& column : steps_) {
    const std::size_t chunk_rows = column->chunk_rows();
    full |= top / chunk_rows > cared_ / chunk_rows;
    if (top % chunk_rows >= chunk_rows / 2) {
      caretaker_.post([chunks = &column->chunks(), top] { chunks->prepare(top); });
    }
    due_ = std::min(due_, next_due(top, chunk_rows));
  }
  if (full && cared_ > 0) post_tidy();
  cared_ = top;
}

EpisodeStore::Snapshot EpisodeStore::snapshot() const {
  Snapshot words = state_->words();
  words[kFinished] = lanes_ ? words[kLanesFirst] : words[kEpisodesTop] - (open_ ? 1 : 0);
  return words;
}

void EpisodeStore::write_through(const Snapshot& now) {
  const std::uint64_t steps_begin = std::max(written_[kStepsTop], now[kStepsFront]);
  for (const auto& column : steps_) {
    column->chunks().seal(steps_begin, now[kStepsTop]);
    column->chunks().sync(steps_begin, now[kStepsTop]);
  }
  const std::uint64_t begin = std::max(written_[kFinished], now[kEpisodesFront]);
  for (const auto& column : episodes_) {
    column->chunks().seal(begin, now[kFinished]);
    column->chunks().sync(begin, now[kEpisodesTop]);
  }
  if (now[kLanes] > 0) {
    const bool same = written_[kLanes] > 0 && written_[kLanesFirst] == now[kLanesFirst];
    lanes_->write_through(same ? written_[kLaneSteps] : 0, now[kLaneSteps]);
  }
  state_->save(now);
  written_ = now;
}

// A disk that is slower than the writer gets the newest state only.
void EpisodeStore::post_tidy() {
  const std::lock_guard<std::mutex> lock(tidy_mutex_);
  const bool waits = !to_tidy_.empty();
  to_tidy_ = snapshot();
  if (!waits) caretaker_.post([this] { tidy(); });
}

// Of the caretaker. An error is left for the next flush to meet.
void EpisodeStore::tidy() noexcept {
  try {
    Snapshot now;
    {
      const std::lock_guard<std::mutex> lock(tidy_mutex_);
      now.swap(to_tidy_);
    }
    write_through(now);
    drop_old(now);
  } catch (const std::exception&) {
  }
}

// Files go only when the words on the disk speak of them no more.
void EpisodeStore::drop_old(const Snapshot& now) {
  std::vector<std::string> files;
  {
    const std::lock_guard<std::mutex> structure(structure_mutex_);
    const std::lock_guard<RwLock> mapping(mapping_lock_);
    for (const auto& column : steps_) column->drop_before(now[kStepsFront], &files);
    for (const auto& column : episodes_) column->drop_before(now[kEpisodesFront], &files);
  }
  for (const std::string& file : files) remove_file(file);
}

void EpisodeStore::flush() {
  check_writer();
  caretaker_.drain();
  const Snapshot now = snapshot();
  write_through(now);
  drop_old(now);
}

void EpisodeStore::close() {
  check_writer();
  if (has_open()) end(EpisodeFlag::aborted);
  flush();
  for (const auto& column : steps_) column->chunks().trim(steps_top());
  for (const auto& column : episodes_) column->chunks().trim(visible(kEpisodesTop));
  state_->seal();
  access_ = Access::read;
}

bool EpisodeStore::close_if_idle() {
  check_writer();
  if (has_open()) return false;
  close();
  return true;
}

void EpisodeStore::abandon() {
  check_writer();
  caretaker_.drain();
  open_ = false;
  lanes_.reset();
  access_ = Access::read;
}

}  // namespace sharpwave
