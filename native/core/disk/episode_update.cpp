// Rows of an EpisodeStore written over: first to a journal, so that all of them are when the
// process dies in the middle, or none.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/disk/checksum.hpp"
#include "core/disk/episode_store.hpp"

namespace sharpwave {
namespace {

constexpr char kMagic[8] = {'s', 'w', 'p', 'a', 't', 'c', 'h', '\n'};

struct Head {
  char magic[8];
  std::uint64_t patches;
};

struct Entry {
  std::uint64_t meta;
  std::uint64_t column;
  std::uint64_t first;
  std::uint64_t n;
};

// Writes a file from its start on, with a checksum at the end.
class JournalWriter {
 public:
  explicit JournalWriter(File* file) : file_(file) {}

  void write(const void* data, std::size_t bytes) {
    file_->write(offset_, data, bytes);
    checksum_ = crc32c(checksum_, data, bytes);
    offset_ += bytes;
  }
  void finish() {
    const std::uint32_t checksum = checksum_;
    write(&checksum, sizeof(checksum));
  }

 private:
  File* file_;
  std::size_t offset_ = 0;
  std::uint32_t checksum_ = 0;
};

std::string journal_path(const EpisodeOptions& options) {
  return options.folder + "/update.journal";
}

}  // namespace

void EpisodeStore::update(const std::vector<EpisodePatch>& patches) {
  check_writer();
  for (const EpisodePatch& patch : patches) {
    const std::uint64_t front = visible(patch.meta ? kEpisodesFront : kStepsFront);
    const std::uint64_t top = visible(patch.meta ? kEpisodesTop : kStepsTop);
    if (patch.first < front || patch.first > top || patch.n > top - patch.first) {
      throw std::out_of_range("row " + std::to_string(patch.first) + " is not there");
    }
    const DiskColumn& column = *(patch.meta ? episodes_ : steps_).at(patch.column);
    for (std::uint64_t row = patch.first; column.is_coded() && row < patch.first + patch.n; ++row) {
      if (!column.chunks().is_coded(row / column.chunk_rows())) continue;
      throw std::invalid_argument(
          "rows of a field with a codec are compressed when a chunk of them is full, and cannot be "
          "updated then");
    }
  }
  caretaker_.drain();
  // What is damaged must not get a checksum that fits it.
  for (const auto& [meta, number, chunk] : touched_by(patches)) {
    const Chunks& chunks = column_of(meta, number).chunks();
    if (chunks.verify(chunk).verdict != ChunkCheck::Verdict::corrupt) continue;
    throw IoError("the chunk is corrupt and cannot be updated", chunks.layout().path(chunk));
  }
  const std::string path = journal_path(options_);
  remove_file(path);
  File journal = File::create(path);
  try {
    JournalWriter writer(&journal);
    Head head{{}, patches.size()};
    std::memcpy(head.magic, kMagic, sizeof(kMagic));
    writer.write(&head, sizeof(head));
    for (const EpisodePatch& patch : patches) {
      const Entry entry{patch.meta, patch.column, patch.first, patch.n};
      writer.write(&entry, sizeof(entry));
      const std::size_t bytes = (patch.meta ? episodes_ : steps_).at(patch.column)->row_bytes();
      if (patch.source.stride == bytes) {
        writer.write(patch.source.data, patch.n * bytes);
        continue;
      }
      for (std::size_t i = 0; i < patch.n; ++i) {
        writer.write(patch.source.data + i * patch.source.stride, bytes);
      }
    }
    writer.finish();
    journal.sync();
    sync_folder(options_.folder);
  } catch (...) {
    remove_file(path);
    throw;
  }
  apply(patches);
  write_through(snapshot());
  remove_file(path);
}

void EpisodeStore::apply(const std::vector<EpisodePatch>& patches) {
  {
    const std::lock_guard<RwLock> mapping(mapping_lock_);  // readers see all of it or nothing
    for (const EpisodePatch& patch : patches) {
      (patch.meta ? episodes_ : steps_)[patch.column]->write(patch.first, patch.n, patch.source);
    }
  }
  for (const auto& [meta, number, chunk] : touched_by(patches)) {
    seal_again(&column_of(meta, number), chunk, written_[meta ? kFinished : kStepsTop]);
  }
}

EpisodeStore::Touched EpisodeStore::touched_by(const std::vector<EpisodePatch>& patches) const {
  Touched touched;
  for (const EpisodePatch& patch : patches) {
    const std::uint64_t rows = column_of(patch.meta, patch.column).chunk_rows();
    for (std::uint64_t chunk = patch.first / rows; chunk * rows < patch.first + patch.n; ++chunk) {
      touched.insert({patch.meta, patch.column, chunk});
    }
  }
  return touched;
}

void EpisodeStore::seal_again(DiskColumn* column, std::uint64_t chunk, std::uint64_t sealed) {
  Chunks& chunks = column->chunks();
  if (chunks.is_coded(chunk) || !chunks.is_mapped(chunk)) return;
  const std::uint64_t first = chunk * column->chunk_rows();
  const std::uint64_t wanted = std::min<std::uint64_t>(sealed, first + column->chunk_rows());
  const std::uint64_t end = std::max(wanted, first + chunks.sealed_rows(chunk));
  if (end <= first) return;
  chunks.seal(first, end, true);
  chunks.sync(first, first + 1);
}

std::vector<EpisodePatch> EpisodeStore::read_journal(std::vector<std::byte>* text) const {
  const std::string path = journal_path(options_);
  try {
    const File journal(path, Access::read);
    text->resize(journal.size());
    journal.read(0, text->data(), text->size());
  } catch (const IoError& error) {
    if (error.code != ENOENT) throw;
    return {};
  }
  // One that is not whole was never begun with.
  std::uint32_t checksum = 0;
  Head head{};
  if (text->size() < sizeof(head) + sizeof(checksum)) return {};
  const std::size_t end = text->size() - sizeof(checksum);
  std::memcpy(&checksum, text->data() + end, sizeof(checksum));
  std::memcpy(&head, text->data(), sizeof(head));
  if (crc32c(0, text->data(), end) != checksum ||
      std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) {
    return {};
  }
  std::vector<EpisodePatch> patches;
  std::size_t at = sizeof(head);
  for (std::uint64_t i = 0; i < head.patches; ++i) {
    Entry entry{};
    if (end - at < sizeof(entry)) throw IoError("the journal makes no sense", path);
    std::memcpy(&entry, text->data() + at, sizeof(entry));
    at += sizeof(entry);
    const bool meta = entry.meta != 0;
    // The last column of episodes says where their steps lie, and is never updated.
    const std::size_t columns = meta ? episodes_.size() - 1 : steps_.size();
    if (entry.column >= columns) throw IoError("the journal makes no sense", path);
    const std::size_t bytes = column_of(meta, entry.column).row_bytes();
    const std::uint64_t front = visible(meta ? kEpisodesFront : kStepsFront);
    const std::uint64_t top = visible(meta ? kEpisodesTop : kStepsTop);
    if (entry.n > (end - at) / bytes) throw IoError("the journal makes no sense", path);
    if (entry.first >= front && entry.first <= top) {  // rows may have gone with the loss of power
      const std::uint64_t n = std::min(entry.n, top - entry.first);
      patches.push_back({meta, entry.column, entry.first, n, {text->data() + at, bytes}});
    }
    at += entry.n * bytes;
  }
  return patches;
}

void EpisodeStore::recover_update() {
  std::vector<std::byte> text;
  std::vector<EpisodePatch> patches = read_journal(&text);
  // A chunk that is not there is repaired without it.
  std::erase_if(patches, [&](const EpisodePatch& patch) {
    const Touched touched = touched_by({patch});
    return std::any_of(touched.begin(), touched.end(), [&](const auto& place) {
      const Chunks& chunks = column_of(patch.meta, patch.column).chunks();
      const std::uint64_t chunk = std::get<2>(place);
      return !chunks.is_mapped(chunk) || chunks.is_coded(chunk);
    });
  });
  apply(patches);
  remove_file(journal_path(options_));
}

}  // namespace sharpwave
