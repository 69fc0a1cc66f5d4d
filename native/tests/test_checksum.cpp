#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/disk/checksum.hpp"
#include "core/isa/kernels.hpp"

using namespace sharpwave;

int main() {
  // The known answers of CRC-32C.
  CHECK(crc32c(0, "123456789", 9) == 0xe3069283U);
  CHECK(crc32c(0, "", 0) == 0);
  const std::vector<unsigned char> zeros(32);
  CHECK(crc32c(0, zeros.data(), zeros.size()) == 0x8a9136aaU);

  std::vector<unsigned char> data(1000);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<unsigned char>(i * 37 + i / 7);
  const std::uint32_t whole = crc32c(0, data.data(), data.size());
  for (const std::size_t cut : {0U, 1U, 7U, 8U, 500U, 999U, 1000U}) {
    const std::uint32_t first = crc32c(0, data.data(), cut);
    CHECK(crc32c(first, data.data() + cut, data.size() - cut) == whole);
  }
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int i = 0; i < count; ++i) {
    for (std::size_t n = 0; n < 40; ++n) {
      CHECK(tables[i]->checksum.crc32c(5, data.data() + 3, n) ==
            tables[0]->checksum.crc32c(5, data.data() + 3, n));
    }
  }
  return 0;
}
