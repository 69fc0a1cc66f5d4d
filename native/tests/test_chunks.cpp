#include <cstring>
#include <filesystem>

#include "check.hpp"
#include "core/disk/chunks.hpp"
#include "test_folder.hpp"

using namespace sharpwave;
using Verdict = ChunkCheck::Verdict;

namespace {

ChunkLayout layout_in(const TestFolder& folder, std::size_t max_chunks = 4) {
  ChunkLayout layout;
  layout.folder = folder.path();
  layout.name = "col";
  layout.row_bytes = 8;
  layout.chunk_rows = page_bytes() / 8;
  layout.max_chunks = max_chunks;
  layout.identity = 7;
  return layout;
}

void write_rows(Chunks& chunks, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t r = begin; r < end; ++r) {
    chunks.reserve(r + 1);
    std::memcpy(chunks.row(r), &r, sizeof(r));
  }
}

bool holds(const Chunks& chunks, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t r = begin; r < end; ++r) {
    if (std::memcmp(chunks.row(r), &r, sizeof(r)) != 0) return false;
  }
  return true;
}

void rows_go_round_and_old_chunks_go() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  Chunks writer(layout, Access::write);
  write_rows(writer, 0, 3 * n + 5);
  Chunks reader(layout, Access::read);
  reader.open(0, 3 * n + 5);
  CHECK(holds(reader, 0, 3 * n + 5));
  writer.prepare(3 * n + 5);
  writer.drop_before(2 * n + 1);
  CHECK((writer.on_disk() == std::vector<std::uint64_t>{2, 3, 4}));
  CHECK(holds(reader, 0, 2 * n));  // a mapped chunk outlives its file
  write_rows(writer, 3 * n + 5, 5 * n + 2);
  CHECK(holds(writer, 2 * n, 5 * n + 2));
  reader.open(2 * n, 5 * n + 2);
  CHECK(holds(reader, 2 * n, 5 * n + 2));

  std::vector<std::string> files;
  writer.drop_before(4 * n, &files);
  CHECK(files.size() == 2 && std::filesystem::exists(files[0]));
}

void a_row_that_will_change_is_not_covered() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  Chunks writer(layout, Access::write);
  write_rows(writer, 0, 2 * n);
  writer.seal(0, 2 * n);
  CHECK(writer.sealed_rows(0) == n && writer.sealed_rows(1) == n);
  CHECK(writer.unseal(2 * n - 1).verdict == Verdict::good);
  CHECK(writer.sealed_rows(0) == n && writer.sealed_rows(1) == n - 1);
  CHECK(writer.verify(1).verdict == Verdict::good);
  std::memset(writer.row(2 * n - 1), 1, 8);
  CHECK(writer.verify(1).verdict == Verdict::good);
  writer.seal(n, 2 * n);
  std::memset(writer.row(n), 1, 8);
  CHECK(writer.unseal(2 * n - 1).verdict == Verdict::corrupt);
  CHECK(writer.sealed_rows(1) == n);  // stays as evidence
}

void a_reopened_column_goes_on() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  {
    Chunks writer(layout, Access::write);
    write_rows(writer, 0, n + 10);
    writer.seal(0, n + 10);
    writer.sync(0, n + 10);
    writer.prepare(n + 10);
    writer.trim(n + 10);
    CHECK((writer.on_disk() == std::vector<std::uint64_t>{0, 1}));
    CHECK(writer.verify(0).verdict == Verdict::good);
    CHECK(writer.verify(1).rows == 10);
  }
  Chunks writer(layout, Access::write);
  writer.open(0, n + 7);  // three rows were not committed after all
  CHECK(holds(writer, 0, n + 7));
  CHECK(writer.verify(1).rows == 7 && writer.verify(1).verdict == Verdict::good);
  write_rows(writer, n + 7, 2 * n + 1);
  CHECK(holds(writer, 0, 2 * n + 1));
  writer.seal(n + 7, 2 * n + 1);
  writer.seal(2 * n, 2 * n + 1);
  for (std::uint64_t chunk = 0; chunk < 3; ++chunk) {
    CHECK(writer.verify(chunk).verdict == Verdict::good);
  }
}

// Damage to rows that a trailer covers outlives the trailers after it.
void sealing_goes_on_from_what_was_sealed() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  {
    Chunks writer(layout, Access::write);
    write_rows(writer, 0, 10);
    writer.seal(0, 10);
  }
  flip_byte(layout.path(0), 5);
  {
    Chunks writer(layout, Access::write);
    writer.set_flushed({10, false});
    writer.open(0, 10);
    write_rows(writer, 10, 20);
    writer.seal(10, 20);
    CHECK(writer.sealed_rows(0) == 20);
    CHECK(writer.verify(0).verdict == Verdict::corrupt);
  }
  flip_byte(layout.path(0), 5);
  CHECK(Chunks(layout, Access::read).verify(0).verdict == Verdict::good);
}

void flushed_rows_need_a_trailer_of_their_own_column() {
  const TestFolder folder;
  ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  {
    Chunks writer(layout, Access::write);
    write_rows(writer, 0, n + 10);
    writer.seal(0, n + 10);
  }
  Chunks reader(layout, Access::read);
  reader.set_flushed({n + 10, false});
  CHECK(reader.verify(1).verdict == Verdict::good);
  reader.set_flushed({n + 11, false});
  CHECK(reader.verify(1).verdict == Verdict::corrupt);

  for (auto change :
       {+[](ChunkLayout* other) { other->identity = 8; },
        +[](ChunkLayout* other) {
          std::filesystem::copy(other->path(0), other->folder + "/other.000000000000");
          other->name = "other";
        },
        +[](ChunkLayout* other) {
          std::filesystem::copy_file(other->path(1), other->path(0),
                                     std::filesystem::copy_options::overwrite_existing);
        }}) {
    ChunkLayout other = layout;
    change(&other);
    CHECK(Chunks(other, Access::read).verify(0).verdict == Verdict::corrupt);
  }

  const std::uintmax_t bytes = std::filesystem::file_size(layout.path(1));
  std::filesystem::resize_file(layout.path(1), 0);
  std::filesystem::resize_file(layout.path(1), bytes);  // zeros
  CHECK(Chunks(layout, Access::read).verify(1).verdict == Verdict::unsealed);
  reader.set_flushed({n + 10, false});
  CHECK(reader.verify(1).verdict == Verdict::corrupt);
  Chunks writer(layout, Access::write);
  writer.set_flushed({n + 10, false});
  CHECK_THROWS(IoError, writer.open(n, n + 10));
  CHECK_THROWS(IoError, writer.seal(n, n + 10));

  // After the loss of power a trailer may be newer than its rows.
  layout.name = "late";
  Chunks late(layout, Access::write);
  write_rows(late, 0, 10);
  late.seal(0, 10);
  flip_byte(layout.path(0), 75);
  late.set_flushed({8, true});
  CHECK(late.verify(0).verdict == Verdict::unsealed);
  late.set_flushed({10, true});
  CHECK(late.verify(0).verdict == Verdict::corrupt);
}

void a_file_made_ahead_by_the_dead_is_replaced() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  std::ofstream(layout.path(1)) << "half";
  Chunks writer(layout, Access::write);
  write_rows(writer, 0, n + 1);
  CHECK(holds(writer, 0, n + 1));
  CHECK(writer.disk_bytes() > 0);
}

void damage_is_found() {
  const TestFolder folder;
  const ChunkLayout layout = layout_in(folder);
  const std::uint64_t n = layout.chunk_rows;
  const std::uint64_t end = 4 * n;
  {
    Chunks writer(layout, Access::write);
    write_rows(writer, 0, end);
    writer.seal(0, end);
  }
  flip_byte(layout.path(0), 100);
  flip_byte(layout.path(1), static_cast<std::streamoff>(layout.chunk_bytes()) + 9);
  std::filesystem::resize_file(layout.path(2), 100);
  std::filesystem::remove(layout.path(3));
  Chunks reader(layout, Access::read);
  CHECK(reader.verify(0).verdict == Verdict::corrupt);
  CHECK(reader.verify(1).verdict == Verdict::corrupt);
  CHECK(reader.verify(2).verdict == Verdict::truncated);
  CHECK(reader.verify(3).verdict == Verdict::missing);
  CHECK_THROWS(IoError, reader.open(0, end));
  std::vector<ChunkCheck> damage;
  reader.open(0, end, &damage);
  CHECK(damage.size() == 2 && damage[0].chunk == 2 && damage[1].verdict == Verdict::missing);
  CHECK(holds(reader, n, 2 * n));
}

void sizes_are_sensible() {
  CHECK(choose_row_bytes(4) == 4 && choose_row_bytes(28225) == 28288);
  for (const std::size_t row : {1U, 4U, 61U, 1023U, 28288U}) {
    for (const std::uint64_t rows :
         {std::uint64_t{1}, std::uint64_t{1000}, std::uint64_t{1} << 40}) {
      const std::size_t bytes = choose_chunk_rows(row, rows) * row;
      CHECK(bytes % page_bytes() == 0);
      CHECK(bytes <= (std::size_t{64} << 20) && bytes >= page_bytes());
    }
  }
}

}  // namespace

int main() {
  rows_go_round_and_old_chunks_go();
  a_row_that_will_change_is_not_covered();
  a_reopened_column_goes_on();
  sealing_goes_on_from_what_was_sealed();
  flushed_rows_need_a_trailer_of_their_own_column();
  a_file_made_ahead_by_the_dead_is_replaced();
  damage_is_found();
  sizes_are_sensible();
  return 0;
}
