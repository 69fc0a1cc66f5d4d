#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/disk/io.hpp"
#include "core/disk/residency.hpp"
#include "test_folder.hpp"

using namespace sharpwave;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct MappedFile {
  explicit MappedFile(std::size_t bytes) : range(bytes) {
    File file = File::create(folder / "file");
    file.allocate(0, bytes);
    map_file(file, Access::write, range.data(), bytes);
  }
  TestFolder folder;
  AddressRange range;
};

bool nothing(std::size_t, std::size_t) { return false; }

void pages_are_asked_for_once() {
  const MappedFile mapped(8 * kMiB);
  Residency residency(mapped.range.data(), mapped.range.bytes(), 0);
  const std::byte* row = mapped.range.data() + kMiB + 100;
  CHECK(residency.missing(row, 30000) == 65536);
  residency.announce(row, 30000);
  CHECK(residency.missing(row, 30000) == 0 && residency.missing(row + 500, 1) == 0);
  CHECK(residency.known_bytes() == 65536);
  CHECK(residency.missing(row + 30000 - 1, 2 * page_bytes()) > 0);  // the next pages are not known
  CHECK(residency.missing(row, 4 * 65536) == 5 * 65536);
  residency.add(mapped.range.data(), kMiB);
  CHECK(residency.missing(mapped.range.data() + kMiB - 50, 50) == 0);
  residency.forget(mapped.range.data(), 8 * kMiB);
  CHECK(residency.known_bytes() == 0 && residency.missing(row, 30000) > 0);
  CHECK(!residency.is_short_of(1000 * kMiB));
}

void releases_keep_to_the_budget_and_the_content() {
  const std::size_t bytes = 64 * kMiB;
  const std::size_t budget = 16 * kMiB;
  const MappedFile mapped(bytes);
  std::byte* base = mapped.range.data();
  for (std::size_t i = 0; i < bytes; i += page_bytes()) std::memcpy(base + i, &i, sizeof(i));
  Residency residency(base, bytes, budget);
  residency.add(base, 15 * kMiB);
  CHECK(!residency.is_short_of(kMiB) && residency.is_short_of(2 * kMiB));
  residency.add(base, bytes);
  CHECK(residency.is_short_of(0) && residency.known_bytes() == bytes);
  residency.release(3 * kMiB, nothing);
  CHECK(!residency.is_short_of(3 * kMiB));
  CHECK(residency.known_bytes() > 0 && residency.known_bytes() <= 13 * kMiB);
  for (std::size_t i = 0; i < bytes; i += page_bytes()) {
    CHECK(std::memcmp(base + i, &i, sizeof(i)) == 0);
  }
  residency.release(100 * kMiB, nothing);  // more than there can ever be
  CHECK(residency.known_bytes() == 0);
}

void what_is_to_be_kept_stays() {
  const MappedFile mapped(64 * kMiB);
  std::byte* base = mapped.range.data();
  Residency residency(base, 64 * kMiB, 16 * kMiB);
  residency.add(base, 64 * kMiB);
  residency.release(0, [](std::size_t begin, std::size_t) { return begin < 32 * kMiB; });
  CHECK(residency.known_bytes() == 32 * kMiB);
  CHECK(residency.missing(base, 32 * kMiB) == 0);
  // It is more than the budget, but nothing else came since: there is nothing to be done.
  CHECK(!residency.is_short_of(kMiB));
  residency.announce(base + 40 * kMiB, 2 * kMiB);
  CHECK(residency.is_short_of(kMiB));
}

}  // namespace

int main() {
  pages_are_asked_for_once();
  releases_keep_to_the_budget_and_the_content();
  what_is_to_be_kept_stays();
}
