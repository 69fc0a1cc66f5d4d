// Included once per instruction set, inside an anonymous namespace (see kernels.hpp).

// Copies past the caches, which has no need to read the target first. Needs an end_stream() before
// anyone else may look.
inline void copy_stream(std::byte* target, const std::byte* source, std::size_t bytes) {
#if defined(__SSE2__)
  const std::size_t odd = -reinterpret_cast<std::uintptr_t>(target) % 16;
  __builtin_memcpy(target, source, odd);
  std::size_t at = odd;
  for (; at + 64 <= bytes; at += 64) {
    for (std::size_t i = 0; i < 64; i += 16) {
      const auto* from = reinterpret_cast<const __m128i*>(source + at + i);
      _mm_stream_si128(reinterpret_cast<__m128i*>(target + at + i), _mm_loadu_si128(from));
    }
  }
  __builtin_memcpy(target + at, source + at, bytes - at);
#else
  __builtin_memcpy(target, source, bytes);
#endif
}

inline void end_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}
