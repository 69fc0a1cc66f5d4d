#include "core/memory.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace sharpwave {

Memory::Memory(std::size_t bytes) : bytes_(bytes == 0 ? 1 : bytes) {
  void* mapped =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped);
#ifdef MADV_HUGEPAGE
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (bytes_ >= 4 * kHugePage) ::madvise(mapped, bytes_, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace sharpwave
