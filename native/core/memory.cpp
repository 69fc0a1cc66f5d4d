#include "core/memory.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <utility>

namespace sharpwave {

Memory::Memory(std::size_t bytes) : bytes_(bytes), mapped_bytes_(bytes == 0 ? 1 : bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const bool huge = bytes >= kHugePage;
  if (huge && __builtin_add_overflow(bytes, kHugePage, &mapped_bytes_)) throw std::bad_alloc();
  mapped_ =
      ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped_);
#ifdef MADV_HUGEPAGE
  if (huge) {
    data_ += (kHugePage - reinterpret_cast<std::uintptr_t>(mapped_) % kHugePage) % kHugePage;
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
#endif
}

Memory::~Memory() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

}  // namespace sharpwave
