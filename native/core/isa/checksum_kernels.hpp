// Kernels of checksums (see isa/kernels.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

struct ChecksumKernels {
  // CRC-32C of what `state` covers (inverted) followed by these bytes, inverted.
  std::uint32_t (*crc32c)(std::uint32_t state, const unsigned char* data, std::size_t bytes);
};

}  // namespace sharpwave
