// CRC-32C, with the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sharpwave {

// The checksum of the bytes that `so_far` covers followed by these; 0 covers none.
std::uint32_t crc32c(std::uint32_t so_far, const void* data, std::size_t bytes);

}  // namespace sharpwave
