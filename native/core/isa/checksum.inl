// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

#ifdef __SSE4_2__

std::uint32_t crc32c_kernel(std::uint32_t state, const unsigned char* data, std::size_t bytes) {
  std::uint64_t wide = state;
  for (; bytes >= 8; data += 8, bytes -= 8) {
    std::uint64_t word;
    __builtin_memcpy(&word, data, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; ++data, --bytes) narrow = _mm_crc32_u8(narrow, *data);
  return narrow;
}

#else

// tables[k][b]: the effect of byte b with k more bytes of the word after it.
struct Crc32cTables {
  std::uint32_t of[8][256];
  constexpr Crc32cTables() : of{} {
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t rest = byte;
      for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78U : 0U);
      of[0][byte] = rest;
    }
    for (int k = 1; k < 8; ++k) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t before = of[k - 1][byte];
        of[k][byte] = (before >> 8) ^ of[0][before & 255];
      }
    }
  }
};
constexpr Crc32cTables kCrc32c;

std::uint32_t crc32c_kernel(std::uint32_t state, const unsigned char* data, std::size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    const std::uint32_t low = state ^ (std::uint32_t{data[0]} | std::uint32_t{data[1]} << 8 |
                                       std::uint32_t{data[2]} << 16 | std::uint32_t{data[3]} << 24);
    state = kCrc32c.of[7][low & 255] ^ kCrc32c.of[6][(low >> 8) & 255] ^
            kCrc32c.of[5][(low >> 16) & 255] ^ kCrc32c.of[4][low >> 24] ^ kCrc32c.of[3][data[4]] ^
            kCrc32c.of[2][data[5]] ^ kCrc32c.of[1][data[6]] ^ kCrc32c.of[0][data[7]];
  }
  for (; bytes > 0; ++data, --bytes) {
    state = (state >> 8) ^ kCrc32c.of[0][(state ^ *data) & 255];
  }
  return state;
}

#endif
