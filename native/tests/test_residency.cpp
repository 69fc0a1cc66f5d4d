#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/disk/io.hpp"
#include "core/disk/residency.hpp"
#include "test_folder.hpp"

using namespace sharpwave;
using Pressure = Residency::Pressure;

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
  CHECK(residency.announce(row, 30000));
  CHECK(!residency.announce(row, 30000));
  CHECK(!residency.announce(row + 500, 1));
  CHECK(residency.announce(row + 30000 - 1, 2 * page_bytes()));  // the one after is not known
  CHECK(residency.known_bytes() >= 30000 + page_bytes());
  CHECK(residency.known_bytes() % 65536 == 0);
  residency.add(mapped.range.data(), kMiB);
  CHECK(!residency.announce(mapped.range.data() + kMiB - 50, 50));
  residency.forget(mapped.range.data(), 8 * kMiB);
  CHECK(residency.known_bytes() == 0);
  CHECK(residency.announce(row, 30000));
}

void releases_keep_to_the_budget_and_the_content() {
  const std::size_t bytes = 64 * kMiB;
  const std::size_t budget = 16 * kMiB;
  const MappedFile mapped(bytes);
  std::byte* base = mapped.range.data();
  for (std::size_t i = 0; i < bytes; i += page_bytes()) std::memcpy(base + i, &i, sizeof(i));
  Residency residency(base, bytes, budget);
  CHECK(residency.pressure() == Pressure::none);
  residency.add(base, 15 * kMiB);
  CHECK(residency.pressure() == Pressure::some);
  residency.add(base, bytes);
  CHECK(residency.pressure() == Pressure::high && residency.known_bytes() == bytes);
  residency.release(nothing);
  CHECK(residency.pressure() == Pressure::none && residency.known_bytes() < budget);
  for (std::size_t i = 0; i < bytes; i += page_bytes()) {
    CHECK(std::memcmp(base + i, &i, sizeof(i)) == 0);
  }
}

void what_is_to_be_kept_stays() {
  const MappedFile mapped(64 * kMiB);
  std::byte* base = mapped.range.data();
  Residency residency(base, 64 * kMiB, 16 * kMiB);
  residency.add(base, 64 * kMiB);
  residency.release([](std::size_t begin, std::size_t) { return begin < 32 * kMiB; });
  CHECK(residency.known_bytes() == 32 * kMiB);
  CHECK(!residency.announce(base, 32 * kMiB));
  // It is more than the budget, but nothing else came since: there is nothing to be done.
  CHECK(residency.pressure() == Pressure::none);
  CHECK(residency.announce(base + 40 * kMiB, kMiB));
  CHECK(residency.announce(base + 50 * kMiB, 2 * kMiB));
  CHECK(residency.pressure() == Pressure::high);
}

}  // namespace

int main() {
  pages_are_asked_for_once();
  releases_keep_to_the_budget_and_the_content();
  what_is_to_be_kept_stays();
}
