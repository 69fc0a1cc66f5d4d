// A zeroed block of anonymous memory, on huge pages where the system has them: random rows of a
// large buffer miss the TLB on nearly every access otherwise.
#pragma once

#include <cstddef>

namespace sharpwave {

class Memory {
 public:
  Memory() = default;
  // Throws std::bad_alloc when the system refuses.
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Aligned to a page, and to a huge page where the block holds one.
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace sharpwave
