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
  remove_file(path);
}

void EpisodeStore::apply(const std::vector<EpisodePatch>& patches) {
  {
    const std::lock_guard<RwLock> mapping(mapping_lock_);  // readers see all of it or nothing
    for (const EpisodePatch& patch : patches) {
      (patch.meta ? episodes_ : steps_)[patch.column]->write(patch.first, patch.n, patch.source);
    }
  }
  for (const EpisodePatch& patch : patches) {
    Chunks& chunks = (patch.meta ? episodes_ : steps_)[patch.column]->chunks();
    const std::uint64_t rows = chunks.layout().chunk_rows;
    const std::uint64_t sealed = written_[patch.meta ? kFinished : kStepsTop];
    for (std::uint64_t first = patch.first / rows * rows;
         first < patch.first + patch.n && first < sealed; first += rows) {
      chunks.seal(first, std::min(first + rows, sealed), true);
      chunks.sync(first, first + 1);
    }
  }
  write_through(snapshot());
}

// A journal that is whole is applied again, one that is not was never begun with.
void EpisodeStore::recover_update() {
  const std::string path = journal_path(options_);
  std::vector<std::byte> text;
  try {
    const File journal(path, Access::read);
    text.resize(journal.size());
    journal.read(0, text.data(), text.size());
  } catch (const IoError& error) {
    if (error.code != ENOENT) throw;
    return;
  }
  const std::size_t end = text.size() - std::min(text.size(), sizeof(std::uint32_t));
  std::uint32_t checksum = 0;
  std::memcpy(&checksum, text.data() + end, text.size() - end);
  Head head{};
  std::memcpy(&head, text.data(), std::min(end, sizeof(head)));
  std::vector<EpisodePatch> patches;
  if (end >= sizeof(head) && crc32c(0, text.data(), end) == checksum &&
      std::memcmp(head.magic, kMagic, sizeof(kMagic)) == 0) {
    std::size_t at = sizeof(head);
    for (std::uint64_t i = 0; i < head.patches; ++i) {
      Entry entry{};
      std::memcpy(&entry, text.data() + at, sizeof(entry));
      at += sizeof(entry);
      const std::size_t bytes =
          (entry.meta != 0 ? episodes_ : steps_).at(entry.column)->row_bytes();
      patches.push_back(
          {entry.meta != 0, entry.column, entry.first, entry.n, {text.data() + at, bytes}});
      at += entry.n * bytes;
    }
    apply(patches);
  }
  remove_file(path);
}

}  // namespace sharpwave
