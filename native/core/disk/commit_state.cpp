#include "core/disk/commit_state.hpp"

#include <cstring>
#include <optional>

#include "core/disk/checksum.hpp"
#include "core/disk/process.hpp"

namespace sharpwave {
namespace {

constexpr char kMagic[8] = {'s', 'w', 's', 't', 'a', 't', 'e', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kSealed = std::uint64_t{1} << 32;

std::size_t whole_pages(std::size_t bytes) {
  // Not the system's page size: the file may move to another machine.
  constexpr std::size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

// A copy of the words: {number, words, checksum}.
struct Copy {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> words;
};

std::size_t copy_bytes(std::size_t n_words) { return whole_pages((n_words + 2) * 8); }

std::vector<std::uint64_t> encode(const Copy& copy) {
  std::vector<std::uint64_t> memory{copy.number};
  memory.insert(memory.end(), copy.words.begin(), copy.words.end());
  memory.push_back(crc32c(0, memory.data(), memory.size() * 8) | kSealed);
  return memory;
}

std::optional<Copy> decode(const File& file, std::size_t offset, std::size_t n_words) {
  std::vector<std::uint64_t> memory(n_words + 2);
  file.read(offset, memory.data(), memory.size() * 8);
  if (memory.back() != (crc32c(0, memory.data(), (n_words + 1) * 8) | kSealed)) return {};
  return Copy{memory.front(), {memory.begin() + 1, memory.end() - 1}};
}

}  // namespace

struct CommitState::Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t n_words;
  std::uint8_t boot[16];
  std::atomic<std::uint64_t> seal;  // a checksum of the words, with kSealed; 0 while they change
  std::uint64_t unused[3];
};

namespace {

constexpr std::size_t kHeaderBytes = 64;
std::size_t live_bytes(std::size_t n_words) { return whole_pages(kHeaderBytes + n_words * 8); }
std::size_t file_bytes(std::size_t n_words) {
  return live_bytes(n_words) + 2 * copy_bytes(n_words);
}

}  // namespace

void CommitState::create(const std::string& path, std::size_t n_words) {
  static_assert(sizeof(Header) == kHeaderBytes);
  File file = File::create(path);
  file.allocate(0, file_bytes(n_words));
  std::vector<unsigned char> header(kHeaderBytes);
  const auto count = static_cast<std::uint32_t>(n_words);
  const auto boot = boot_id();
  std::memcpy(header.data() + offsetof(Header, magic), kMagic, sizeof(kMagic));
  std::memcpy(header.data() + offsetof(Header, version), &kVersion, sizeof(kVersion));
  std::memcpy(header.data() + offsetof(Header, n_words), &count, sizeof(count));
  std::memcpy(header.data() + offsetof(Header, boot), boot.data(), boot.size());
  const std::vector<std::uint64_t> copy = encode({1, std::vector<std::uint64_t>(n_words)});
  file.write(live_bytes(n_words) + copy_bytes(n_words), copy.data(), copy.size() * 8);
  file.write(0, header.data(), header.size());
  file.sync();
}

CommitState::CommitState(const std::string& path, std::size_t n_words, Access access)
    : n_words_(n_words), file_(path, access), private_words_(n_words) {
  if (file_.size() < file_bytes(n_words)) {
    throw IoError("the commit state is truncated", path);
  }
  if (access == Access::write) file_.fill_holes(0, file_bytes(n_words));
  range_ = AddressRange(live_bytes(n_words));
  map_file(file_, access, range_.data(), range_.bytes());
  if (access == Access::read) check_readable(file_, range_.data(), range_.bytes());
  header_ = reinterpret_cast<Header*>(range_.data());
  if (std::memcmp(header_->magic, kMagic, sizeof(kMagic)) != 0) {
    throw IoError("the commit state is not one", path);
  }
  if (header_->version != kVersion) {
    throw IoError("the commit state has version " + std::to_string(header_->version) +
                      ", and this library knows " + std::to_string(kVersion),
                  path);
  }
  if (header_->n_words != n_words) throw IoError("the commit state is of another store", path);
  words_ = reinterpret_cast<std::atomic<std::uint64_t>*>(range_.data() + kHeaderBytes);
  restore(access);
}

void CommitState::restore(Access access) {
  std::optional<Copy> newest;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    std::optional<Copy> copy =
        decode(file_, live_bytes(n_words_) + slot * copy_bytes(n_words_), n_words_);
    if (copy && (!newest || copy->number > newest->number)) newest = std::move(copy);
  }
  saved_words_ = newest ? newest->words : std::vector<std::uint64_t>(n_words_);
  if (newest) copies_ = newest->number;
  const auto boot = boot_id();
  const bool same_boot = std::memcmp(header_->boot, boot.data(), boot.size()) == 0;
  const std::uint64_t seal = header_->seal.load(std::memory_order_acquire);
  const bool sealed = seal != 0 && seal == checksum_of_words();
  // Looked at again: a writer that takes over breaks the seal before it changes a word.
  const bool unsealed = header_->seal.load(std::memory_order_acquire) == 0;
  // Words of another start count when they are those of the copy: a reader then sees, by them, what
  // a writer does later.
  const bool usable = same_boot ? sealed || unsealed : sealed && newest && newest->words == words();
  if (!usable) {
    if (!newest) throw IoError("the commit state is damaged", file_.path());
    rolled_back_ = !same_boot || newest->words != words();
    if (access == Access::read) words_ = private_words_.data();
    for (std::size_t i = 0; i < n_words_; ++i) set(i, newest->words[i]);
  }
  if (access == Access::read) return;
  std::memcpy(header_->boot, boot.data(), boot.size());
  header_->seal.store(0, std::memory_order_release);
  // On the disk, too: a seal says that no file was changed since.
  if (seal != 0) file_.sync();
}

std::uint64_t CommitState::checksum_of_words() const {
  const std::vector<std::uint64_t> now = words();
  return crc32c(0, now.data(), now.size() * 8) | kSealed;
}

std::vector<std::uint64_t> CommitState::words() const {
  std::vector<std::uint64_t> now(n_words_);
  for (std::size_t i = 0; i < n_words_; ++i) now[i] = get(i);
  return now;
}

void CommitState::save(const std::vector<std::uint64_t>& saved) {
  const std::lock_guard<std::mutex> lock(save_mutex_);
  const std::vector<std::uint64_t> copy = encode({copies_ + 1, saved});
  const std::size_t slot = (copies_ + 1) % 2;
  file_.write(live_bytes(n_words_) + slot * copy_bytes(n_words_), copy.data(), copy.size() * 8);
  file_.sync();
  saved_words_ = saved;
  ++copies_;
}

void CommitState::seal() { header_->seal.store(checksum_of_words(), std::memory_order_release); }

}  // namespace sharpwave
