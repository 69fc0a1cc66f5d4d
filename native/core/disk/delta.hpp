// Rows in a form that compresses well: what changed since the row before, with the bytes of equal
// weight together.
#pragma once

#include <cstddef>

namespace sharpwave {

// out[k][r][i] = byte k of item i of row r, minus that of row r - 1: planes of bytes, k <
// item_bytes. `bytes` is whole rows, and a row whole items.
void delta_rows(const unsigned char* rows, std::size_t bytes, std::size_t row_bytes,
                std::size_t item_bytes, unsigned char* out);
// The way back.
void undelta_rows(const unsigned char* planes, std::size_t bytes, std::size_t row_bytes,
                  std::size_t item_bytes, unsigned char* rows);

}  // namespace sharpwave
