#include "core/disk/rewrite_journal.hpp"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/disk/checksum.hpp"

namespace sharpwave {
namespace {

constexpr char kMagic[8] = {'s', 'w', 'r', 'o', 'w', 's', '1', '\n'};
constexpr std::chrono::seconds kPatience{1};  // a writer writes for milliseconds

struct Entry {
  std::uint32_t stream;
  std::uint32_t bytes;
  std::uint64_t row;
  std::uint64_t offset;
};

}  // namespace

void RewriteJournal::map(std::size_t bytes) {
  range_ = AddressRange(bytes);
  map_file(file_, access_, range_.data(), bytes);
}

bool RewriteJournal::open() {
  if (is_open_.load(std::memory_order_acquire)) return true;
  const std::lock_guard<std::mutex> lock(opening_);
  if (is_open_) return true;
  // Asked before every batch of a reader while nothing was written over yet: without an exception.
  if (::access(path_.c_str(), F_OK) != 0 && errno == ENOENT) return false;
  try {
    file_ = File(path_, access_);
  } catch (const IoError& error) {
    if (error.code == ENOENT) return false;
    throw;
  }
  const std::size_t pages = file_.size() / page_bytes() * page_bytes();
  if (pages == 0) return false;  // it is just being made
  map(access_ == Access::read ? page_bytes() : pages);
  is_open_ = std::memcmp(head()->magic, kMagic, sizeof(kMagic)) == 0;
  if (!is_open_) range_ = AddressRange();
  return is_open_;
}

void RewriteJournal::make_room(std::size_t bytes) {
  const std::size_t needed = (bytes + 2 * page_bytes() - 1) / page_bytes() * page_bytes();
  const bool is_new = !open();
  if (!is_new && range_.bytes() >= needed) return;
  if (is_new) {
    remove_file(path_);  // a power failure may have left one without its head
    file_ = File::create(path_);
  }
  const std::size_t wanted = needed + needed / 4 / page_bytes() * page_bytes();
  file_.allocate(0, wanted);
  map(wanted);
  if (is_new) std::memcpy(head()->magic, kMagic, sizeof(kMagic));
  is_open_ = true;
}

void RewriteJournal::begin(const std::vector<RowPatch>& patches) {
  std::size_t bytes = 0;
  for (const RowPatch& patch : patches) bytes += sizeof(Entry) + patch.bytes;
  make_room(bytes);
  std::byte* const first = range_.data() + page_bytes();
  std::byte* at = first;
  for (const RowPatch& patch : patches) {
    const Entry entry{patch.stream, patch.bytes, patch.row, patch.offset};
    std::memcpy(at, &entry, sizeof(entry));
    std::memcpy(at + sizeof(entry), patch.data, patch.bytes);
    at += sizeof(entry) + patch.bytes;
  }
  head()->patches = patches.size();
  head()->bytes = bytes;
  head()->checksum = crc32c(0, first, bytes);
  head()->begun.fetch_add(1);
}

void RewriteJournal::end() {
  if (is_open_) head()->done = head()->begun.load();
}

std::vector<RowPatch> RewriteJournal::unfinished() {
  std::vector<RowPatch> patches;
  if (!open() || head()->done == head()->begun) return patches;
  const std::byte* at = range_.data() + page_bytes();
  const std::uint64_t bytes = head()->bytes;
  // One that is not whole went with the power, and the rows are as they were.
  if (bytes > range_.bytes() - page_bytes() || crc32c(0, at, bytes) != head()->checksum) {
    return patches;
  }
  const std::byte* const last = at + bytes;
  for (std::uint64_t i = 0; i < head()->patches; ++i) {
    Entry entry{};
    if (static_cast<std::size_t>(last - at) < sizeof(entry)) break;
    std::memcpy(&entry, at, sizeof(entry));
    at += sizeof(entry);
    if (static_cast<std::size_t>(last - at) < entry.bytes) break;
    patches.push_back({entry.stream, entry.bytes, entry.row, entry.offset, at});
    at += entry.bytes;
  }
  return patches;
}

std::uint64_t RewriteJournal::settled() {
  if (!open()) return 0;
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const std::uint64_t begun = head()->begun.load(std::memory_order_acquire);
    if (head()->done.load(std::memory_order_acquire) == begun) return begun;
    if (std::chrono::steady_clock::now() > limit) return begun;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

bool RewriteJournal::is_settled(std::uint64_t count) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return !open() || head()->begun.load(std::memory_order_relaxed) == count;
}

}  // namespace sharpwave
