#include <algorithm>
#include <cstring>
#include <vector>

#include "core/gather.hpp"
#include "core/isa/kernels.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"

namespace {

using namespace sharpwave;

Field bytes_field(std::size_t bytes) {
  return {"x", DType::uint8, {static_cast<std::int64_t>(bytes)}, Role::extra, 1, 0, false, -1};
}

void fill(RowStore* store, SplitMix& random) {
  for (std::size_t i = 0; i < store->slots() * store->stride(); ++i) {
    store->record(0)[i] = static_cast<std::byte>(random.next());
  }
}

std::vector<std::uint64_t> random_slots(std::size_t n, std::size_t slots, SplitMix& random) {
  std::vector<std::uint64_t> chosen(n);
  for (std::uint64_t& slot : chosen) {
    slot = random.below(8) == 0 ? kNoSlot : random.below(slots);
  }
  return chosen;
}

using Gather = void (*)(const RowStore&, const GatherColumn*, std::size_t, std::size_t);

// Two columns of these sizes, read at different slots, against plain copies.
void copies_rows_by(Gather copy, std::size_t first, std::size_t second, std::size_t rows) {
  Schema schema;
  schema.fields = {bytes_field(first), bytes_field(second)};
  RowStore store(schema, Layout::transition, 97);
  SplitMix random(first * 1000 + second);
  fill(&store, random);
  const auto slots_a = random_slots(rows, 97, random);
  const auto slots_b = random_slots(rows, 97, random);
  constexpr std::byte kGuard{0xA5};
  std::vector<std::byte> out_a(rows * first + 1, kGuard);
  std::vector<std::byte> out_b(rows * second + 1, kGuard);
  const GatherColumn columns[] = {{store.column(0), slots_a.data(), out_a.data()},
                                  {store.column(1), slots_b.data(), out_b.data()}};
  copy(store, columns, 2, rows);
  CHECK(out_a.back() == kGuard && out_b.back() == kGuard);
  for (const GatherColumn& column : columns) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < column.column.bytes; ++i) {
        const std::byte expected = column.slots[row] == kNoSlot
                                       ? std::byte{0}
                                       : store.record(column.slots[row])[column.column.offset + i];
        CHECK(column.out[row * column.column.bytes + i] == expected);
      }
    }
  }
}

void copies_rows(std::size_t first, std::size_t second, std::size_t rows) {
  copies_rows_by(gather, first, second, rows);
  copies_rows_by(gather_windows, first, second, rows);
}

void copies_rows_of_every_size() {
  for (std::size_t bytes = 1; bytes <= 200; ++bytes) copies_rows(bytes, 201 - bytes, 70);
  for (const std::size_t bytes : {1000, 1023, 1024, 1025, 5000}) copies_rows(bytes, 3, 9);
  copies_rows(5000, 4100, 40);
  for (const std::size_t rows : {0, 1, 63, 64, 65, 128, 129}) copies_rows(17, 4, rows);
}

// A column that lies by itself, as those on disk do.
void copies_a_lone_column(std::size_t bytes, std::size_t rows) {
  SplitMix random(bytes);
  constexpr std::size_t kSlots = 97;
  std::vector<std::byte> base(kSlots * bytes);
  for (std::byte& byte : base) byte = static_cast<std::byte>(random.next());
  const auto slots = random_slots(rows, kSlots, random);
  std::vector<std::byte> out(rows * bytes + 1, std::byte{0xA5});
  const GatherColumn column{{0, bytes}, slots.data(), out.data()};
  kernels().rows.gather(base.data(), bytes, &column, 1, rows);
  CHECK(out.back() == std::byte{0xA5});
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::byte expected =
          slots[row] == kNoSlot ? std::byte{0} : base[slots[row] * bytes + i];
      CHECK(out[row * bytes + i] == expected);
    }
  }
}

void copies_lone_columns_of_every_size() {
  for (std::size_t bytes = 1; bytes <= 200; ++bytes) copies_a_lone_column(bytes, 70);
  for (const std::size_t bytes : {1000, 1023, 1024, 1025, 5000}) copies_a_lone_column(bytes, 9);
  for (const std::size_t rows : {0, 1, 15, 16, 17}) copies_a_lone_column(12, rows);
}

void joins_frames(std::size_t outer, std::size_t stack, std::size_t inner) {
  const FrameShape shape{outer, stack, inner};
  constexpr std::size_t kSlots = 7;  // of each of three streams
  Schema schema;
  schema.fields = {bytes_field(5), bytes_field(shape.frame_bytes())};
  RowStore store(schema, Layout::transition, 3 * kSlots);
  SplitMix random(outer * 100 + stack * 10 + inner);
  fill(&store, random);
  const auto slots = random_slots(40, 3 * kSlots, random);
  std::vector<std::byte> out(slots.size() * shape.frame_bytes() * stack + 1, std::byte{0xA5});
  gather_stack(store, {store.column(1), slots.data(), out.data()}, shape, kSlots, slots.size());
  CHECK(out.back() == std::byte{0xA5});
  for (std::size_t row = 0; row < slots.size(); ++row) {
    for (std::size_t o = 0; o < outer; ++o) {
      for (std::size_t j = 0; j < stack; ++j) {
        for (std::size_t i = 0; i < inner; ++i) {
          std::byte expected{0};
          if (slots[row] != kNoSlot) {
            const std::size_t base = slots[row] / kSlots * kSlots;
            const std::size_t at = (slots[row] - base + 10 * kSlots + j + 1 - stack) % kSlots;
            expected = store.record(base + at)[store.column(1).offset + o * inner + i];
          }
          CHECK(out[((row * outer + o) * stack + j) * inner + i] == expected);
        }
      }
    }
  }
}

void joins_stacks_of_every_form() {
  for (const std::size_t outer : {1, 2, 9}) {
    for (const std::size_t stack : {2, 3, 4, 7}) {
      for (const std::size_t inner : {1, 2, 3, 4, 8, 20, 100}) joins_frames(outer, stack, inner);
    }
  }
}

void frames_are_copied_and_compared() {
  const FrameShape shape{3, 4, 5};
  std::vector<std::byte> stacked(60);
  SplitMix random(1);
  for (std::byte& byte : stacked) byte = static_cast<std::byte>(random.next());
  for (std::size_t frame = 0; frame < 4; ++frame) {
    std::vector<std::byte> target(15);
    copy_frame(shape, stacked.data(), frame, target.data());
    for (std::size_t o = 0; o < 3; ++o) {
      CHECK(std::memcmp(&target[o * 5], &stacked[(o * 4 + frame) * 5], 5) == 0);
    }
    CHECK(equal_frame(shape, stacked.data(), frame, target.data()));
    for (std::byte& byte : target) {
      byte ^= std::byte{1};
      CHECK(!equal_frame(shape, stacked.data(), frame, target.data()));
      byte ^= std::byte{1};
    }
  }
}

}  // namespace

int main() {
  copies_rows_of_every_size();
  copies_lone_columns_of_every_size();
  joins_stacks_of_every_form();
  frames_are_copied_and_compared();
}
