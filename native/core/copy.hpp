// Copies of small fixed-size values, inlined: a call to memcpy costs more than most fields do.
#pragma once

#include <cstddef>
#include <cstring>

namespace sharpwave {

// Two possibly overlapping copies of N bytes cover any size from N to 2 N.
template <std::size_t N>
inline void copy_ends(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::byte head[N];
  std::byte tail[N];
  std::memcpy(head, source, N);
  std::memcpy(tail, source + bytes - N, N);
  std::memcpy(target, head, N);
  std::memcpy(target + bytes - N, tail, N);
}

// The branches depend on the field alone, so they are well predicted over rows.
inline void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes > 32) {
    if (bytes > 512) {
      std::memcpy(target, source, bytes);
      return;
    }
    for (std::size_t offset = 0; offset + 32 <= bytes; offset += 32) {
      std::memcpy(target + offset, source + offset, 32);
    }
    std::memcpy(target + bytes - 32, source + bytes - 32, 32);
  } else if (bytes == 4) {
    std::memcpy(target, source, 4);
  } else if (bytes == 1) {
    *target = *source;
  } else if (bytes >= 16) {
    copy_ends<16>(target, source, bytes);
  } else if (bytes >= 8) {
    copy_ends<8>(target, source, bytes);
  } else {
    std::memcpy(target, source, bytes);
  }
}

}  // namespace sharpwave
