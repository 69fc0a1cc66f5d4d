// Copies of small fixed-size values, inlined: a call to memcpy costs more than most fields do.
// To be included inside an anonymous namespace (see kernels.hpp).

// `kBlocks` blocks of 16 bytes and a last one that may overlap them: sizes 16 kBlocks to 16 kBlocks
// + 16.
template <std::size_t kBlocks>
inline void copy_blocks(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::byte tail[16];
  __builtin_memcpy(tail, source + bytes - 16, 16);
  __builtin_memcpy(target, source, 16 * kBlocks);
  __builtin_memcpy(target + bytes - 16, tail, 16);
}

// Calls `body` with the function that copies values of this size. The choice is made once, so that
// the body's loop over rows has no branches on the size.
template <typename Body>
inline void with_copy(std::size_t bytes, Body&& body) {
  const auto fixed = [&]<std::size_t kBytes>() {
    body([](std::byte* t, const std::byte* s) { __builtin_memcpy(t, s, kBytes); });
  };
  const auto blocks = [&]<std::size_t kBytes>() {
    body([bytes](std::byte* t, const std::byte* s) { copy_blocks<kBytes>(t, s, bytes); });
  };
  switch (bytes) {
    case 1:
      return fixed.template operator()<1>();
    case 2:
      return fixed.template operator()<2>();
    case 4:
      return fixed.template operator()<4>();
    case 8:
      return fixed.template operator()<8>();
    case 12:
      return fixed.template operator()<12>();
    default:
      break;
  }
  switch (bytes / 16) {
    case 1:
      return blocks.template operator()<1>();
    case 2:
      return blocks.template operator()<2>();
    case 3:
      return blocks.template operator()<3>();
    case 4:
      return blocks.template operator()<4>();
    case 5:
      return blocks.template operator()<5>();
    case 6:
      return blocks.template operator()<6>();
    case 7:
      return blocks.template operator()<7>();
    case 8:
      return blocks.template operator()<8>();
    default:
      break;
  }
  body([bytes](std::byte* t, const std::byte* s) { __builtin_memcpy(t, s, bytes); });
}

// One value. The branches depend on the field alone, so they are well predicted over rows.
inline void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
  with_copy(bytes, [&](auto&& copy) { copy(target, source); });
}
