// Finding damaged chunks of an EpisodeStore, and going on without the episodes in them.
#include <algorithm>
#include <shared_mutex>

#include "core/disk/episode_store.hpp"

namespace sharpwave {
namespace {

constexpr const char* kHint = "; repair=True goes on without them";

const char* describe_verdict(ChunkCheck::Verdict verdict) {
  switch (verdict) {
    case ChunkCheck::Verdict::missing:
      return "the chunk is missing";
    case ChunkCheck::Verdict::truncated:
      return "the chunk is truncated";
    default:
      return "the chunk is corrupt: its checksum does not fit";
  }
}

bool is_damage(ChunkCheck::Verdict verdict) {
  return verdict != ChunkCheck::Verdict::good && verdict != ChunkCheck::Verdict::unsealed;
}

// Whether rows [first, first + n) touch one of the chunks.
bool touches(const std::vector<ChunkCheck>& chunks, std::size_t chunk_rows, std::uint64_t first,
             std::uint64_t n) {
  return std::any_of(chunks.begin(), chunks.end(), [&](const ChunkCheck& check) {
    const std::uint64_t begin = check.chunk * chunk_rows;
    return first < begin + chunk_rows && begin < first + n;
  });
}

}  // namespace

template <typename Function>
void EpisodeStore::each_column(Function&& function) const {
  std::size_t number = 0;
  for (const auto& column : steps_) {
    function(*column, visible(kStepsFront), visible(kStepsTop), number++);
  }
  for (const auto& column : episodes_) {
    function(*column, visible(kEpisodesFront), visible(kEpisodesTop), number++);
  }
}

EpisodeStore::Damaged EpisodeStore::find_damage() const {
  Damaged damaged(steps_.size() + episodes_.size());
  each_column(
      [&](const DiskColumn& column, std::uint64_t front, std::uint64_t top, std::size_t number) {
        const std::size_t rows = column.chunk_rows();
        for (std::uint64_t chunk = front / rows; front < top && chunk * rows < top; ++chunk) {
          const ChunkCheck check = column.chunks().verify(chunk);
          if (is_damage(check.verdict) && !is_changing(number, chunk)) {
            damaged[number].push_back(check);
          }
        }
      });
  return damaged;
}

EpisodeDamage EpisodeStore::describe(const Damaged& damaged) const {
  EpisodeDamage found;
  const std::shared_lock<RwLock> lock(mapping_lock_);
  each_column([&](const DiskColumn& column, std::uint64_t, std::uint64_t, std::size_t number) {
    for (const ChunkCheck& check : damaged[number]) {
      found.chunks.push_back(column.chunks().layout().path(check.chunk) + ": " +
                             describe_verdict(check.verdict));
    }
  });
  for (std::uint64_t id = visible(kEpisodesFront); id < visible(kEpisodesTop); ++id) {
    bool lost = touches(damaged.back(), episodes_.back()->chunk_rows(), id, 1);
    const bool known = !lost;
    const EpisodeRow row = known ? read_row(id) : EpisodeRow{0, 0};
    if (known && row.flag() == EpisodeFlag::gone) continue;
    const std::uint64_t length =
        row.flag() == EpisodeFlag::open ? steps_top() - row.start : row.length();
    each_column([&](const DiskColumn& column, std::uint64_t, std::uint64_t, std::size_t number) {
      const bool of_steps = number < steps_.size();
      lost |= touches(damaged[number], column.chunk_rows(), of_steps ? row.start : id,
                      of_steps ? length : 1);
    });
    if (!lost) continue;
    found.ids.push_back(static_cast<std::int64_t>(id));
    found.steps += known ? length : 0;
  }
  return found;
}

void EpisodeStore::check_words(bool repairing) {
  const std::vector<std::uint64_t>& saved = state_->saved_words();
  const auto check = [&](const auto& columns, Word front_word, Word top_word) {
    const std::uint64_t front = state_->get(front_word);  // in this order: a writer may be at work
    const std::uint64_t top = state_->get(top_word);
    // No word goes back behind its copy, which has a checksum. One file may be missing of every
    // column: that is told by its name.
    const bool fits = saved[front_word] <= front && front <= top && saved[top_word] <= top;
    if (fits && (top == 0 || columns.front()->chunks().layout().has_file(
                                 (top - 1) / columns.front()->chunk_rows())))
      return;
    std::uint64_t held = 0;
    std::uint64_t chunk_rows = 0;
    for (const auto& column : columns) {
      chunk_rows = std::max<std::uint64_t>(chunk_rows, column->chunk_rows());
      for (const bool coded : {false, true}) {
        const std::vector<std::uint64_t> files = column->chunks().layout().on_disk(coded);
        std::uint64_t rows = 0;
        if (!files.empty() &&
            !__builtin_mul_overflow(files.back() + 1, column->chunk_rows(), &rows)) {
          held = std::max(held, rows);
        }
      }
    }
    if (fits && top <= held + chunk_rows) return;
    const std::string path = options_.folder + "/state";
    const std::string what = "the commit state speaks of rows " + std::to_string(front) + " to " +
                             std::to_string(top) + ", and the files hold " + std::to_string(held);
    if (!repairing) throw IoError(what + kHint, path);
    repaired_.chunks.push_back(path + ": " + what);
    const std::uint64_t end = std::clamp(top, std::min(saved[top_word], held), held);
    state_->set(top_word, end);
    state_->set(front_word, std::clamp(front, std::min(saved[front_word], end), end));
  };
  check(steps_, kStepsFront, kStepsTop);
  check(episodes_, kEpisodesFront, kEpisodesTop);
}

bool EpisodeStore::is_changing(std::size_t number, std::uint64_t chunk) const {
  if (is_writer()) return false;
  const bool meta = number >= steps_.size();
  const std::size_t column = meta ? number - steps_.size() : number;
  std::vector<std::byte> text;
  if (touched_by(read_journal(&text)).count({meta, column, chunk}) > 0) return true;
  return !is_damage(column_of(meta, column).chunks().verify(chunk).verdict);  // it has ended
}

EpisodeDamage EpisodeStore::verify() const { return describe(find_damage()); }

void EpisodeStore::repair() {
  const Damaged damaged = find_damage();
  EpisodeDamage found = describe(damaged);
  found.chunks.insert(found.chunks.begin(), repaired_.chunks.begin(), repaired_.chunks.end());
  repaired_ = std::move(found);
  // The index first: where a writer dies in the middle, the next one finds the rest.
  for (std::size_t number = damaged.size(); number-- > 0;) {
    const bool of_steps = number < steps_.size();
    DiskColumn& column = of_steps ? *steps_[number] : *episodes_[number - steps_.size()];
    const std::uint64_t top = visible(of_steps ? kStepsTop : kEpisodesTop);
    const std::uint64_t rows = column.chunk_rows();
    for (const ChunkCheck& check : damaged[number]) {
      if (check.verdict != ChunkCheck::Verdict::corrupt) column.chunks().replace(check.chunk);
    }
    if (number + 1 == damaged.size()) {
      std::uint64_t next = steps_top();  // a lost episode begins where the one after it does
      for (std::uint64_t id = top; id-- > visible(kEpisodesFront);) {
        EpisodeRow* row = index_row(id);
        if (touches(damaged.back(), rows, id, 1)) {
          row->start = next;
          set_word(row, 0, EpisodeFlag::gone);
        }
        next = row->start;
      }
      std::set<std::uint64_t> changed;
      for (const std::int64_t id : repaired_.ids) {
        set_word(index_row(static_cast<std::uint64_t>(id)), 0, EpisodeFlag::gone);
        changed.insert(static_cast<std::uint64_t>(id) / rows);
      }
      for (const std::uint64_t chunk : changed) seal_again(&column, chunk, written_[kFinished]);
    }
    for (const ChunkCheck& check : damaged[number]) {
      const std::uint64_t first = check.chunk * rows;
      column.chunks().seal(first, std::min<std::uint64_t>(first + rows, top), true);
      column.chunks().sync(first, first + 1);
    }
  }
}

}  // namespace sharpwave
