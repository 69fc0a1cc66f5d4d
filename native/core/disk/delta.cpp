#include "core/disk/delta.hpp"

namespace sharpwave {

void delta_rows(const unsigned char* rows, std::size_t bytes, std::size_t row_bytes,
                std::size_t item_bytes, unsigned char* out) {
  const std::size_t n_rows = bytes / row_bytes;
  const std::size_t items = row_bytes / item_bytes;
  for (std::size_t k = 0; k < item_bytes; ++k) {
    for (std::size_t r = 0; r < n_rows; ++r) {
      const unsigned char* row = rows + r * row_bytes + k;
      const unsigned char* before = r == 0 ? nullptr : row - row_bytes;
      for (std::size_t i = 0; i < items; ++i) {
        const unsigned int old = before == nullptr ? 0 : before[i * item_bytes];
        *out++ = static_cast<unsigned char>(row[i * item_bytes] - old);
      }
    }
  }
}

void undelta_rows(const unsigned char* planes, std::size_t bytes, std::size_t row_bytes,
                  std::size_t item_bytes, unsigned char* rows) {
  const std::size_t n_rows = bytes / row_bytes;
  const std::size_t items = row_bytes / item_bytes;
  for (std::size_t k = 0; k < item_bytes; ++k) {
    for (std::size_t r = 0; r < n_rows; ++r) {
      unsigned char* row = rows + r * row_bytes + k;
      const unsigned char* before = r == 0 ? nullptr : row - row_bytes;
      for (std::size_t i = 0; i < items; ++i) {
        const unsigned int old = before == nullptr ? 0 : before[i * item_bytes];
        row[i * item_bytes] = static_cast<unsigned char>(*planes++ + old);
      }
    }
  }
}

}  // namespace sharpwave
