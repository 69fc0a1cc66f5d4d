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

// Copies n values of `bytes` each between arrays of any strides. The size is looked at once, so the
// loops have no branches.
inline void copy_strided(std::byte* target, std::size_t target_stride, const std::byte* source,
                         std::size_t source_stride, std::size_t bytes, std::size_t n) {
  const auto each = [&](auto&& copy) {
    for (std::size_t i = 0; i < n; ++i) {
      copy(target, source);
      target += target_stride;
      source += source_stride;
    }
  };
  if (bytes == 1) return each([](std::byte* t, const std::byte* s) { *t = *s; });
  if (bytes == 4) return each([](std::byte* t, const std::byte* s) { std::memcpy(t, s, 4); });
  if (bytes == 8) return each([](std::byte* t, const std::byte* s) { std::memcpy(t, s, 8); });
  if (bytes >= 16 && bytes <= 32) {
    return each([=](std::byte* t, const std::byte* s) { copy_ends<16>(t, s, bytes); });
  }
  if (bytes > 32 && bytes <= 64) {
    return each([=](std::byte* t, const std::byte* s) { copy_ends<32>(t, s, bytes); });
  }
  if (bytes > 64 && bytes <= 128) {
    return each([=](std::byte* t, const std::byte* s) { copy_ends<64>(t, s, bytes); });
  }
  each([=](std::byte* t, const std::byte* s) { copy_bytes(t, s, bytes); });
}

}  // namespace sharpwave
