// Which pages of mapped files are in this process, so that they stay within a budget and those that
// are not are asked for all at once.
//
// A page is known once it was announced, until its part of the range is released. The system also
// maps neighbors of a page that it finds in its cache; so the budget counts a whole group of pages
// for each known one, and releases take groups whole. As long as everything fits, an announcement
// is a look at a few bits and no call to the system.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace sharpwave {

class Residency {
 public:
  // Of `bytes` mapped bytes from `base` on, a multiple of the page size both. A budget of 0 bounds
  // nothing.
  Residency(std::byte* base, std::size_t bytes, std::size_t budget);

  // How much memory reading the bytes may take: 0 when they are known to be there.
  std::size_t missing(const std::byte* data, std::size_t bytes) const {
    const std::size_t first = page_of(data);
    const std::size_t last = page_of(data + bytes - 1);
    if (are_known(first, last)) return 0;
    return (last / group_pages_ - first / group_pages_ + 1) * group_bytes_;
  }
  // Says that bytes will be read soon. Has the system start to read those that may not be in
  // memory.
  void announce(const std::byte* data, std::size_t bytes) {
    const std::size_t first = page_of(data);
    const std::size_t last = page_of(data + bytes - 1);
    if (!are_known(first, last)) ask_for(first, last);
  }
  // Says that bytes were written, which brings them into memory.
  void add(const std::byte* data, std::size_t bytes);
  // Says that nothing is mapped there any more.
  void forget(const std::byte* data, std::size_t bytes);

  std::size_t known_bytes() const {
    return known_groups_.load(std::memory_order_relaxed) * group_bytes_;
  }
  // Whether pages have to go before so many more bytes may come.
  bool is_short_of(std::size_t bytes) const {
    const std::size_t known = known_bytes();
    return budget_ > 0 && known + bytes > budget_ && known > stuck_.load(std::memory_order_relaxed);
  }
  // Takes pages out of the process, going round the range, until there is room for so many more
  // bytes. Parts for which keep(offset, bytes) is true stay.
  void release(std::size_t bytes, const std::function<bool(std::size_t, std::size_t)>& keep);

 private:
  static std::size_t next_word(std::size_t page, std::size_t last) {
    const std::size_t end = (page / 64 + 1) * 64;
    return end <= last ? end : last + 1;
  }
  // Bits of pages [page, end) in their word.
  static std::uint64_t mask(std::size_t page, std::size_t end) {
    return (~std::uint64_t{0} >> (64 - (end - page))) << (page % 64);
  }
  std::size_t page_of(const std::byte* data) const {
    return static_cast<std::size_t>(data - base_) >> page_shift_;
  }
  // Sets the bits of pages [first, last].
  void mark(std::size_t first, std::size_t last);
  bool are_known(std::size_t first, std::size_t last) const {
    for (std::size_t page = first; page <= last;) {
      const std::size_t end = next_word(page, last);
      const std::uint64_t bits = mask(page, end);
      if ((words_[page / 64].load(std::memory_order_relaxed) & bits) != bits) return false;
      page = end;
    }
    return true;
  }
  void ask_for(std::size_t first, std::size_t last);
  // How many groups have one of these pages.
  std::size_t groups_in(std::uint64_t word) const;

  std::byte* base_;
  std::size_t bytes_;
  std::size_t budget_;
  unsigned page_shift_;
  std::size_t group_pages_;
  std::size_t group_bytes_;
  std::vector<std::atomic<std::uint64_t>> words_;  // one bit per page
  std::atomic<std::size_t> known_groups_{0};
  // What has to stay may be more than the budget; it is not looked through again for every page.
  std::atomic<std::size_t> stuck_{0};
  std::mutex release_mutex_;
  unsigned long generation_;  // of the process that made it
  std::size_t hand_ = 0;      // where the next release goes on
};

}  // namespace sharpwave
