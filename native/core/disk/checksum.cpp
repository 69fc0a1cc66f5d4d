#include "core/disk/checksum.hpp"

#include "core/isa/kernels.hpp"

namespace sharpwave {

std::uint32_t crc32c(std::uint32_t so_far, const void* data, std::size_t bytes) {
  return ~kernels().checksum.crc32c(~so_far, static_cast<const unsigned char*>(data), bytes);
}

}  // namespace sharpwave
