#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/disk/delta.hpp"

using namespace sharpwave;

int main() {
  // Two rows of two 16-bit items: planes of low bytes, then of high bytes.
  const unsigned char rows[] = {1, 2, 3, 4, 5, 7, 9, 11};
  const unsigned char planes[] = {1, 3, 4, 6, 2, 4, 5, 7};
  unsigned char out[8];
  delta_rows(rows, 8, 4, 2, out);
  CHECK(std::memcmp(out, planes, 8) == 0);
  unsigned char back[8];
  undelta_rows(planes, 8, 4, 2, back);
  CHECK(std::memcmp(back, rows, 8) == 0);
  delta_rows(rows, 0, 4, 2, out);
  return 0;
}
