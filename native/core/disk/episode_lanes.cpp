#include "core/disk/episode_lanes.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/disk/episode_store.hpp"

namespace sharpwave {
namespace {

constexpr const char* kName = "lanes";
constexpr std::size_t kFewRows = 1 << 16;
constexpr std::size_t kMostRowBytes = std::size_t{1} << 40;

std::string lanes_path(const std::string& folder) { return folder + "/staging"; }

// Rows are padded a little, so that few of them fill whole pages.
std::size_t padded(std::size_t bytes) {
  std::size_t unit = 8;
  while (unit < 65536 && unit * 32 <= bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

EpisodeLanes::EpisodeLanes(const EpisodeOptions& options,
                           const std::vector<std::size_t>& field_bytes, std::size_t n_lanes,
                           std::uint64_t rows, FlushedRows flushed)
    : field_bytes_(field_bytes), lengths_(n_lanes), rows_(rows) {
  const std::string& folder = options.folder;
  for (const std::size_t bytes : field_bytes) {
    std::size_t all = 0;
    offsets_.push_back(mask_offset_);
    if (__builtin_mul_overflow(bytes, n_lanes, &all) ||
        __builtin_add_overflow(mask_offset_, all, &mask_offset_) || mask_offset_ > kMostRowBytes) {
      throw IoError("episodes side by side need too much room for a step of all of them",
                    lanes_path(folder));
    }
  }
  const std::size_t row_bytes = padded(mask_offset_ + n_lanes);
  if (::mkdir(lanes_path(folder).c_str(), 0777) == 0) {
    sync_folder(folder);
  } else if (errno != EEXIST) {
    throw IoError("cannot make", lanes_path(folder), errno);
  }
  const ColumnSpec spec{kName, row_bytes, choose_chunk_rows(row_bytes, kFewRows)};
  column_ = std::make_unique<DiskColumn>(lanes_path(folder), spec, Access::write, options.identity,
                                         flushed);
  // A row more than there are cannot be in the files: the words of a dead writer have no checksum.
  const std::vector<std::uint64_t> files = column_->chunks().on_disk();
  const std::uint64_t held = files.empty() ? 0 : (files.back() + 1) * spec.chunk_rows;
  if (rows > held) {
    throw IoError("the commit state speaks of " + std::to_string(rows) +
                      " rows of episodes side by side, and the files hold " + std::to_string(held),
                  lanes_path(folder));
  }
  column_->open(0, rows);
  for (std::uint64_t chunk = 0; chunk * spec.chunk_rows < rows; ++chunk) {
    if (column_->chunks().verify(chunk).verdict != ChunkCheck::Verdict::corrupt) continue;
    throw IoError("the chunk is corrupt: its checksum does not fit",
                  column_->chunks().layout().path(chunk));
  }
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::size_t lane = 0; lane < n_lanes; ++lane) lengths_[lane] += active(row)[lane] != 0;
  }
}

void EpisodeLanes::remove_files(const std::string& folder) {
  const ChunkLayout layout{lanes_path(folder), kName, 0, 0, 0};
  struct stat status{};
  if (::stat(layout.folder.c_str(), &status) != 0) return;
  for (const std::uint64_t chunk : layout.on_disk()) remove_file(layout.path(chunk));
}

void EpisodeLanes::reserve() {
  if (must_grow()) column_->grow(rows_ + 1);
  column_->reserve(rows_ + 1);
}

void EpisodeLanes::write(const Source* steps, const std::uint8_t* active) {
  std::byte* row = column_->row(rows_);
  for (std::size_t field = 0; field < field_bytes_.size(); ++field) {
    const std::size_t bytes = field_bytes_[field];
    for (std::size_t lane = 0; lane < size(); ++lane) {
      std::memcpy(row + offsets_[field] + lane * bytes,
                  steps[field].data + lane * steps[field].stride, bytes);
    }
  }
  std::memcpy(row + mask_offset_, active, size());
  for (std::size_t lane = 0; lane < size(); ++lane) lengths_[lane] += active[lane] != 0;
  ++rows_;
}

void EpisodeLanes::copy(std::size_t lane, std::size_t field, DiskColumn* column,
                        std::uint64_t first) const {
  for (std::uint64_t row = 0; row < rows_; ++row) {
    if (active(row)[lane] == 0) continue;
    const std::byte* value = column_->row(row) + offsets_[field] + lane * field_bytes_[field];
    column->write(first++, 1, {value, 0});
  }
}

void EpisodeLanes::write_through(std::uint64_t begin, std::uint64_t end) {
  column_->chunks().seal(begin, end);
  column_->chunks().sync(begin, end);
}

void EpisodeStore::begin_lanes(std::size_t n, const Source* meta) {
  check_writer();
  check_no_open();
  if (n == 0) throw std::invalid_argument("a batch must have at least one episode, got none");
  check_room(n);
  const std::uint64_t id = visible(kEpisodesTop);
  make_room(steps_top(), id + n);
  EpisodeLanes::remove_files(options_.folder);
  lanes_ = make_lanes(n, 0, {});
  for (std::size_t i = 0; i + 1 < episodes_.size(); ++i) episodes_[i]->write(id, n, meta[i]);
  for (std::uint64_t lane = id; lane < id + n; ++lane) {
    index_row(lane)->start = steps_top();
    set_word(index_row(lane), 0, EpisodeFlag::open);
  }
  state_->set(kLanesFirst, id);
  state_->set(kLaneSteps, 0);
  state_->set(kLanesClosing, 0);
  state_->set(kLanes, n);
  commit(kEpisodesTop, id + n);
  if (options_.power) flush();
}

std::unique_ptr<EpisodeLanes> EpisodeStore::make_lanes(std::size_t n, std::uint64_t rows,
                                                       FlushedRows flushed) const {
  std::vector<std::size_t> field_bytes;
  for (const auto& column : steps_) field_bytes.push_back(column->row_bytes());
  return std::make_unique<EpisodeLanes>(options_, field_bytes, n, rows, flushed);
}

void EpisodeStore::append_lanes(const Source* steps, const std::uint8_t* active) {
  check_writer();
  if (!lanes_) throw std::runtime_error("no batch of episodes is open");
  for (std::size_t lane = 0; lane < lanes_->size(); ++lane) {
    check_length(lanes_->length(lane) + (active[lane] != 0));
  }
  if (lanes_->must_grow()) caretaker_.drain();  // it must not be at work on what moves
  lanes_->reserve();
  lanes_->write(steps, active);
  state_->set(kLaneSteps, lanes_->rows());
  if (options_.power) flush();
}

void EpisodeStore::set_lanes_meta(std::size_t column, Source values) {
  check_writer();
  if (!lanes_) throw std::runtime_error("no batch of episodes is open");
  episodes_.at(column)->write(state_->get(kLanesFirst), lanes_->size(), values);
}

void EpisodeStore::end_lanes(EpisodeFlag flag) {
  std::uint64_t total = 0;
  for (std::size_t lane = 0; lane < lanes_->size(); ++lane) total += lanes_->length(lane);
  make_room(steps_top() + total, visible(kEpisodesTop));
  state_->set(kLanesClosing, flag == EpisodeFlag::complete);
  for (std::size_t lane = 0; lane < lanes_->size(); ++lane) {
    EpisodeRow* row = index_row(state_->get(kLanesFirst) + lane);
    // Of a writer that died in the middle. After a loss of power its steps may not be there.
    if (row->flag() != EpisodeFlag::open && row->start + row->length() <= steps_top()) continue;
    const std::uint64_t first = steps_top();
    for (std::size_t field = 0; field < steps_.size(); ++field) {
      lanes_->copy(lane, field, steps_[field].get(), first);
    }
    const std::uint64_t length = lanes_->length(lane);
    row->start = first;
    commit(kStepsTop, first + length);
    set_word(row, length, length > 0 ? flag : EpisodeFlag::gone);
    complete_ += length > 0 && flag == EpisodeFlag::complete;
  }
  state_->set(kLanes, 0);
  // Files go only when the words on the disk speak of them no more.
  caretaker_.drain();
  if (written_[kLanes] != 0) write_through(snapshot());
  lanes_.reset();
  EpisodeLanes::remove_files(options_.folder);
}

void EpisodeStore::recover_lanes(bool repairing) {
  const std::uint64_t n = state_->get(kLanes);
  const std::uint64_t first = state_->get(kLanesFirst);
  const std::uint64_t top = visible(kEpisodesTop);
  if (n > 0 && first >= visible(kEpisodesFront) && first <= top && n <= top - first) {
    const bool same = written_[kLanes] == n && written_[kLanesFirst] == first;
    const FlushedRows flushed{same ? written_[kLaneSteps] : 0, state_->rolled_back()};
    try {
      lanes_ = make_lanes(n, state_->get(kLaneSteps), flushed);
    } catch (const IoError& error) {
      if (!repairing) throw;
      repaired_.chunks.emplace_back(error.what());
    }
    const bool closing = state_->get(kLanesClosing) != 0;
    if (lanes_) end_lanes(closing ? EpisodeFlag::complete : EpisodeFlag::aborted);
  }
  state_->set(kLanes, 0);
  EpisodeLanes::remove_files(options_.folder);
}

}  // namespace sharpwave
