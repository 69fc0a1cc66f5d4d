#include "core/disk/residency.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "core/disk/io.hpp"
#include "core/disk/process.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kFaultAround = 65536;  // what the system maps at most around a page it needs
constexpr std::size_t kReleaseWords = 16;    // taken out by one call to the system

}  // namespace

Residency::Residency(std::byte* base, std::size_t bytes, std::size_t budget)
    : base_(base),
      bytes_(bytes),
      budget_(budget),
      page_shift_(static_cast<unsigned>(std::countr_zero(page_bytes()))),
      group_pages_(std::max<std::size_t>(kFaultAround >> page_shift_, 1)),
      group_bytes_(group_pages_ << page_shift_),
      words_(((bytes >> page_shift_) + 63) / 64),
      generation_(process_generation()) {}

std::size_t Residency::groups_in(std::uint64_t word) const {
  const std::uint64_t group = ~std::uint64_t{0} >> (64 - group_pages_);
  std::size_t count = 0;
  for (std::size_t page = 0; page < 64; page += group_pages_) {
    count += (word >> page & group) != 0 ? 1 : 0;
  }
  return count;
}

void Residency::mark(std::size_t first, std::size_t last) {
  for (std::size_t page = first; page <= last;) {
    const std::size_t end = next_word(page, last);
    const std::uint64_t bits = mask(page, end);
    const std::uint64_t before = words_[page / 64].fetch_or(bits, std::memory_order_relaxed);
    const std::size_t more = groups_in(before | bits) - groups_in(before);
    if (more > 0) known_groups_.fetch_add(more, std::memory_order_relaxed);
    page = end;
  }
}

void Residency::ask_for(std::size_t first, std::size_t last) {
  mark(first, last);
  ::madvise(base_ + (first << page_shift_), (last - first + 1) << page_shift_, MADV_WILLNEED);
}

void Residency::add(const std::byte* data, std::size_t bytes) {
  if (bytes > 0) mark(page_of(data), page_of(data + bytes - 1));
}

void Residency::forget(const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t last = page_of(data + bytes - 1);
  for (std::size_t page = page_of(data); page <= last;) {
    const std::size_t end = next_word(page, last);
    const std::uint64_t bits = mask(page, end);
    const std::uint64_t before = words_[page / 64].fetch_and(~bits, std::memory_order_relaxed);
    known_groups_.fetch_sub(groups_in(before) - groups_in(before & ~bits),
                            std::memory_order_relaxed);
    page = end;
  }
}

void Residency::release(std::size_t more,
                        const std::function<bool(std::size_t, std::size_t)>& keep) {
  const std::size_t block_bytes = (std::size_t{64} << page_shift_) * kReleaseWords;
  const std::size_t blocks = (bytes_ + block_bytes - 1) / block_bytes;
  const std::size_t room = more + budget_ / 8;  // a little more, so that the next one is not soon
  const std::size_t goal = budget_ - std::min(budget_, room);
  std::unique_lock<std::mutex> lock(release_mutex_, std::defer_lock);
  if (generation_ == process_generation()) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;  // a thread of the parent was at it when this process was forked
  }
  for (std::size_t turn = 0; turn < blocks && known_bytes() > goal; ++turn) {
    const std::size_t block = hand_;
    hand_ = (hand_ + 1) % blocks;
    const std::size_t begin = block * block_bytes;
    const std::size_t count = std::min(block_bytes, bytes_ - begin);
    if (keep(begin, count)) continue;
    std::size_t groups = 0;
    const std::size_t end = std::min((block + 1) * kReleaseWords, words_.size());
    for (std::size_t word = block * kReleaseWords; word < end; ++word) {
      groups += groups_in(words_[word].exchange(0, std::memory_order_relaxed));
    }
    known_groups_.fetch_sub(groups, std::memory_order_relaxed);
    // Even if none is known: one may have come back while another thread released it.
    ::madvise(base_ + begin, count, MADV_DONTNEED);
  }
  const std::size_t known = known_bytes();
  stuck_ = known > goal ? known + budget_ / 16 : 0;
}

}  // namespace sharpwave
