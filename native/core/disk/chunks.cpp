#include "core/disk/chunks.hpp"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "core/disk/checksum.hpp"

namespace sharpwave {
namespace {

constexpr char kMagic[8] = {'s', 'w', 'c', 'h', 'u', 'n', 'k', '\n'};
const std::string kCodedSuffix = ".coded";
constexpr std::size_t kTrailerPage = 4096;                // the trailer has a page to itself
constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // of a column: half of a process's
constexpr std::size_t kMostDigits = 15;                   // of a chunk's number

constexpr const char* kHint = "; repair=True goes on without what was in it";

struct Trailer {
  char magic[8];
  std::uint64_t chunk;
  std::uint64_t rows;
  std::uint64_t row_bytes;
  std::uint32_t checksum;  // of the rows
  std::uint32_t own_checksum;
};

Trailer make_trailer(std::uint32_t seed, std::uint64_t chunk, std::uint64_t rows,
                     std::size_t row_bytes, std::uint32_t checksum) {
  Trailer trailer{{}, chunk, rows, row_bytes, checksum, 0};
  std::memcpy(trailer.magic, kMagic, sizeof(kMagic));
  trailer.own_checksum = crc32c(seed, &trailer, sizeof(trailer));
  return trailer;
}

// Whether a trailer was written for this chunk of this column.
bool is_valid(const Trailer& trailer, std::uint32_t seed, const ChunkLayout& layout,
              std::uint64_t chunk) {
  Trailer copy = trailer;
  copy.own_checksum = 0;
  return std::memcmp(trailer.magic, kMagic, sizeof(kMagic)) == 0 &&
         trailer.own_checksum == crc32c(seed, &copy, sizeof(copy)) && trailer.chunk == chunk &&
         trailer.row_bytes == layout.row_bytes && trailer.rows <= layout.chunk_rows;
}

// Whether a trailer says that its rows are written over, and have no checksum meanwhile.
bool is_changing(const Trailer& trailer) { return trailer.rows == 0; }

bool is_empty(const Trailer& trailer) {
  const Trailer none{};
  return std::memcmp(&trailer, &none, sizeof(none)) == 0;
}

std::size_t file_bytes(const ChunkLayout& layout) { return layout.chunk_bytes() + kTrailerPage; }

Trailer read_trailer(const File& file, const ChunkLayout& layout) {
  Trailer trailer{};
  file.read(layout.chunk_bytes(), &trailer, sizeof(trailer));
  return trailer;
}

std::uint32_t checksum_of_file(const File& file, std::size_t bytes) {
  std::vector<std::byte> piece(std::min<std::size_t>(bytes, std::size_t{1} << 20));
  std::uint32_t checksum = 0;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(piece.size(), bytes - done);
    file.read(done, piece.data(), count);
    checksum = crc32c(checksum, piece.data(), count);
    done += count;
  }
  return checksum;
}

// Space on the disk is taken in steps, so that a small store stays small.
std::size_t extent_bytes(const ChunkLayout& layout) {
  const std::size_t step = std::min(layout.chunk_bytes() / 4, std::size_t{4} << 20);
  return std::max(step, std::size_t{65536});
}

}  // namespace

std::string ChunkLayout::coded_path(std::uint64_t chunk) const {
  return path(chunk) + kCodedSuffix;
}

std::string ChunkLayout::path(std::uint64_t chunk) const {
  std::string digits = std::to_string(chunk);
  digits.insert(0, digits.size() < 12 ? 12 - digits.size() : 0, '0');
  return folder + "/" + name + "." + digits;
}

std::size_t choose_row_bytes(std::size_t bytes) {
  return bytes < 1024 ? bytes : (bytes + 63) / 64 * 64;
}

std::size_t choose_chunk_rows(std::size_t row_bytes, std::uint64_t max_rows) {
  constexpr double kSmallest = 65536;
  constexpr double kLargest = 64.0 * (1 << 20);
  const std::size_t page = page_bytes();
  const std::size_t unit = page / std::gcd(page, row_bytes);  // rows that fill whole pages
  const double all = static_cast<double>(row_bytes) * static_cast<double>(max_rows);
  const double wanted = std::clamp(all / 16, kSmallest, kLargest);
  const auto units = static_cast<std::size_t>(wanted / static_cast<double>(unit * row_bytes));
  return unit * std::max<std::size_t>(units, 1);
}

Chunks::Chunks(ChunkLayout layout, Access access, std::byte* range)
    : layout_(std::move(layout)),
      access_(access),
      ring_rows_(layout_.ring_rows()),
      base_(range),
      seed_(layout_.identity == 0
                ? 0
                : crc32c(layout_.identity, layout_.name.data(), layout_.name.size())) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(layout_.row_bytes, layout_.chunk_rows, &bytes) ||
      __builtin_mul_overflow(bytes, layout_.max_chunks, &bytes) || bytes > kMostBytes) {
    throw IoError("column " + layout_.name + " needs more addresses than there are",
                  layout_.folder);
  }
  if (layout_.chunk_bytes() == 0 || layout_.chunk_bytes() % page_bytes() != 0) {
    throw IoError("the chunks of column " + layout_.name + " have " +
                      std::to_string(layout_.chunk_bytes()) +
                      " bytes, which are no whole pages on this machine",
                  layout_.folder);
  }
  if (range == nullptr) {
    own_ = AddressRange(layout_.chunk_bytes() * layout_.max_chunks);
    base_ = own_.data();
  }
}

Chunks::~Chunks() = default;

void Chunks::map(const File& file, std::uint64_t chunk) {
  map_file(file, access_, address(chunk), layout_.chunk_bytes());
  if (layout_.random) ::madvise(address(chunk), layout_.chunk_bytes(), MADV_RANDOM);
  add_mapped(chunk);
}

void Chunks::add_mapped(std::uint64_t chunk) {
  while (!mapped_.empty() && *mapped_.begin() + layout_.max_chunks <= chunk) {
    if (is_coded(*mapped_.begin())) coded_.erase(*mapped_.begin());
    mapped_.erase(mapped_.begin());  // its place is taken
  }
  mapped_.insert(chunk);
}

void Chunks::hold_in_memory(std::uint64_t chunk) {
  map_memory(address(chunk), layout_.chunk_bytes());
  add_mapped(chunk);
  coded_.insert(chunk);
}

void Chunks::open(std::uint64_t begin, std::uint64_t end, std::vector<ChunkCheck>* damage) {
  const auto report = [&](std::uint64_t chunk, ChunkCheck::Verdict verdict,
                          const std::string& what) {
    if (damage == nullptr) throw IoError(what, layout_.path(chunk));
    damage->push_back({verdict, chunk, 0});
    if (access_ == Access::read) map_zeros(address(chunk), layout_.chunk_bytes());
  };
  for (std::uint64_t chunk = begin / layout_.chunk_rows; chunk * layout_.chunk_rows < end;
       ++chunk) {
    if (mapped_.count(chunk) > 0) continue;
    File file;
    try {
      file = File(layout_.path(chunk), access_);
    } catch (const IoError& error) {
      if (error.code != ENOENT) throw;
      if (::access(layout_.coded_path(chunk).c_str(), F_OK) == 0) {
        hold_in_memory(chunk);
        continue;
      }
      report(chunk, ChunkCheck::Verdict::missing, "the chunk is missing" + std::string(kHint));
      continue;
    }
    if (file.size() < file_bytes(layout_)) {
      report(chunk, ChunkCheck::Verdict::truncated,
             "the chunk is truncated: " + std::to_string(file.size()) + " of " +
                 std::to_string(file_bytes(layout_)) + " bytes" + kHint);
      continue;
    }
    const std::uint64_t used =
        std::min<std::uint64_t>(end - chunk * layout_.chunk_rows, layout_.chunk_rows);
    if (access_ == Access::write) {
      // A copy may have left holes in place of zeros.
      file.fill_holes(0, static_cast<std::size_t>(used) * layout_.row_bytes);
      file.fill_holes(layout_.chunk_bytes(), kTrailerPage);
    }
    map(file, chunk);
    if (access_ == Access::read) {
      check_readable(file, address(chunk), static_cast<std::size_t>(used) * layout_.row_bytes);
    }
  }
  if (access_ == Access::read) return;
  reserved_ = end;
  const std::uint64_t chunk = end / layout_.chunk_rows;
  if (end % layout_.chunk_rows == 0 || mapped_.count(chunk) == 0) return;
  // Rows after `end` will be written anew: a trailer that covers them would accuse the new ones.
  if (unseal(end).verdict == ChunkCheck::Verdict::corrupt) {
    report(chunk, ChunkCheck::Verdict::corrupt, "the chunk is corrupt" + std::string(kHint));
  }
}

File Chunks::make_file(std::uint64_t chunk) const {
  const std::string path = layout_.path(chunk);
  remove_file(path);  // made ahead by a process that died, or cut off by the loss of power
  File file = File::create(path);
  try {
    file.resize(file_bytes(layout_));
    file.allocate(layout_.chunk_bytes(), kTrailerPage);
  } catch (...) {
    remove_file(path);
    throw;
  }
  return file;
}

void Chunks::reserve_more(std::uint64_t end) {
  while (reserved_ < end) {
    const std::uint64_t chunk = reserved_ / layout_.chunk_rows;
    const std::uint64_t first = chunk * layout_.chunk_rows;
    File file;
    if (mapped_.count(chunk) > 0) {
      file = File(layout_.path(chunk), Access::write);
    } else {
      const std::lock_guard<std::mutex> lock(prepare_mutex_);
      file = prepared_ == chunk + 1 ? File(layout_.path(chunk), Access::write) : make_file(chunk);
      map(file, chunk);
      prepared_ = std::max(prepared_, chunk + 1);  // not to be made again by a late `prepare`
      files_are_new_ = true;
    }
    const std::size_t begin = (reserved_ - first) * layout_.row_bytes;
    const std::size_t stop = std::min(
        std::max<std::size_t>(begin + extent_bytes(layout_), (end - first) * layout_.row_bytes),
        layout_.chunk_bytes());
    file.allocate(begin, stop - begin);
    reserved_ = first + stop / layout_.row_bytes;
  }
}

void Chunks::prepare(std::uint64_t end) noexcept {
  if (end == 0) return;
  const std::uint64_t chunk = (end - 1) / layout_.chunk_rows + 1;
  const std::lock_guard<std::mutex> lock(prepare_mutex_);
  if (prepared_ > chunk) return;
  try {
    File file = make_file(chunk);
    file.allocate(0, layout_.chunk_bytes());
    prepared_ = chunk + 1;
  } catch (const std::exception&) {  // `reserve` will meet it too, and tell
    ::unlink(layout_.path(chunk).c_str());
  }
}

void Chunks::drop_before(std::uint64_t row, std::vector<std::string>* files) {
  const std::uint64_t kept = row / layout_.chunk_rows;
  while (!mapped_.empty() && *mapped_.begin() < kept) {
    const std::uint64_t chunk = *mapped_.begin();
    unmap(address(chunk), layout_.chunk_bytes());
    mapped_.erase(mapped_.begin());
    const bool coded = is_coded(chunk);
    if (coded) coded_.erase(chunk);  // not touched without need: another thread may be syncing
    if (access_ == Access::read) continue;
    const std::string file = coded ? layout_.coded_path(chunk) : layout_.path(chunk);
    if (files != nullptr) {
      files->push_back(file);
    } else {
      remove_file(file);
    }
  }
}

Chunks::Sealed Chunks::read_sealed(const File& file, std::uint64_t chunk) const {
  const Trailer trailer = read_trailer(file, layout_);
  const bool valid = is_valid(trailer, seed_, layout_, chunk);
  if ((valid && (is_changing(trailer) || trailer.rows >= rows_to_cover(chunk))) ||
      (is_empty(trailer) && rows_to_cover(chunk) == 0)) {
    return {chunk, trailer.rows, trailer.checksum};
  }
  throw IoError("the chunk is corrupt: it has no valid checksum" + std::string(kHint), file.path());
}

void Chunks::seal(std::uint64_t begin, std::uint64_t end, bool changed) {
  if (changed) sealed_ = Sealed{};
  for (std::uint64_t chunk = begin / layout_.chunk_rows; chunk * layout_.chunk_rows < end;
       ++chunk) {
    if (is_coded(chunk)) continue;  // has checksums of its own
    const std::uint64_t first = chunk * layout_.chunk_rows;
    const std::uint64_t rows = std::min<std::uint64_t>(end - first, layout_.chunk_rows);
    File file(layout_.path(chunk), Access::write);
    Sealed next{chunk, 0, 0};
    if (!changed) {
      next = sealed_.rows > 0 && sealed_.chunk == chunk ? sealed_ : read_sealed(file, chunk);
      if (next.rows > rows) next = {chunk, 0, 0};
    }
    next.checksum = crc32c(next.checksum, row(first + next.rows),
                           static_cast<std::size_t>(rows - next.rows) * layout_.row_bytes);
    next.rows = rows;
    const Trailer trailer = make_trailer(seed_, chunk, rows, layout_.row_bytes, next.checksum);
    file.write(layout_.chunk_bytes(), &trailer, sizeof(trailer));
    sealed_ = next;
  }
}

void Chunks::mark_changed(std::uint64_t chunk) {
  File file(layout_.path(chunk), Access::write);
  const Trailer trailer = make_trailer(seed_, chunk, 0, layout_.row_bytes, 0);
  file.write(layout_.chunk_bytes(), &trailer, sizeof(trailer));
  file.sync();  // the rows must not come to the disk before
  sealed_ = Sealed{};
}

ChunkCheck Chunks::unseal(std::uint64_t end) {
  using Verdict = ChunkCheck::Verdict;
  const std::uint64_t chunk = end / layout_.chunk_rows;
  if (mapped_.count(chunk) == 0 || is_coded(chunk)) return {Verdict::good, chunk, 0};
  const std::uint64_t rows = end % layout_.chunk_rows;
  File file(layout_.path(chunk), Access::write);
  const Trailer trailer = read_trailer(file, layout_);
  if (is_empty(trailer) && rows_to_cover(chunk) == 0) return {Verdict::unsealed, chunk, 0};
  if (!is_valid(trailer, seed_, layout_, chunk)) return {Verdict::corrupt, chunk, 0};
  if (is_changing(trailer)) return {Verdict::unsealed, chunk, 0};
  if (trailer.rows <= rows) {
    const bool covers = trailer.rows >= std::min(rows_to_cover(chunk), rows);
    return {covers ? Verdict::good : Verdict::corrupt, chunk, trailer.rows};
  }
  const ChunkCheck check = verify(chunk);
  if (check.verdict == Verdict::corrupt) return check;
  const std::uint32_t checksum =
      checksum_of_file(file, static_cast<std::size_t>(rows) * layout_.row_bytes);
  const Trailer less =
      rows == 0 ? Trailer{} : make_trailer(seed_, chunk, rows, layout_.row_bytes, checksum);
  file.write(layout_.chunk_bytes(), &less, sizeof(less));
  file.sync();  // the rows must not come to the disk before
  sealed_ = Sealed{};
  return {Verdict::good, chunk, rows};
}

void Chunks::sync(std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t chunk = begin / layout_.chunk_rows; chunk * layout_.chunk_rows < end;
       ++chunk) {
    if (!is_coded(chunk)) File(layout_.path(chunk), Access::write).sync();
  }
  if (files_are_new_.exchange(false)) sync_folder(layout_.folder);
}

void Chunks::trim(std::uint64_t end) {
  const std::uint64_t chunk = end / layout_.chunk_rows;
  {
    const std::lock_guard<std::mutex> lock(prepare_mutex_);
    if (prepared_ > 0 && mapped_.count(prepared_ - 1) == 0) {
      remove_file(layout_.path(prepared_ - 1));
    }
    prepared_ = 0;
  }
  if (reserved_ <= end || mapped_.count(chunk) == 0) return;
  const std::size_t used =
      static_cast<std::size_t>(end - chunk * layout_.chunk_rows) * layout_.row_bytes;
  File(layout_.path(chunk), Access::write).punch(used, layout_.chunk_bytes() - used);
  reserved_ = end;
}

void Chunks::replace(std::uint64_t chunk) {
  File file = make_file(chunk);
  file.allocate(0, layout_.chunk_bytes());
  map(file, chunk);
}

std::uint64_t Chunks::rows_to_cover(std::uint64_t chunk) const {
  const std::uint64_t first = chunk * layout_.chunk_rows;
  if (flushed_.end <= first) return 0;
  // Writers of version 1 took the trailer off the newest chunk when they opened a store.
  const std::uint64_t rows = flushed_.end - first;
  if (layout_.identity == 0 && rows <= layout_.chunk_rows) return 0;
  return std::min<std::uint64_t>(rows, layout_.chunk_rows);
}

ChunkCheck Chunks::verify(std::uint64_t chunk) const {
  using Verdict = ChunkCheck::Verdict;
  if (is_coded(chunk)) return {Verdict::good, chunk, layout_.chunk_rows};
  File file;
  try {
    file = File(layout_.path(chunk), Access::read);
  } catch (const IoError& error) {
    if (error.code != ENOENT) throw;
    return {Verdict::missing, chunk, 0};
  }
  if (file.size() < file_bytes(layout_)) return {Verdict::truncated, chunk, 0};
  const Trailer trailer = read_trailer(file, layout_);
  if (is_empty(trailer)) {
    return {rows_to_cover(chunk) == 0 ? Verdict::unsealed : Verdict::corrupt, chunk, 0};
  }
  const bool valid = is_valid(trailer, seed_, layout_, chunk);
  if (valid && is_changing(trailer)) return {Verdict::unsealed, chunk, 0};
  if (!valid || trailer.rows < rows_to_cover(chunk)) return {Verdict::corrupt, chunk, 0};
  const auto bytes = static_cast<std::size_t>(trailer.rows) * layout_.row_bytes;
  if (checksum_of_file(file, bytes) == trailer.checksum) {
    return {Verdict::good, chunk, trailer.rows};
  }
  // A trailer may have come to the disk before the power was lost, and its newest rows not.
  const bool newer = chunk * layout_.chunk_rows + trailer.rows > flushed_.end;
  return {flushed_.rolled_back && newer ? Verdict::unsealed : Verdict::corrupt, chunk,
          trailer.rows};
}

std::uint64_t Chunks::sealed_rows(std::uint64_t chunk) const {
  const Trailer trailer = read_trailer(File(layout_.path(chunk), Access::read), layout_);
  return is_valid(trailer, seed_, layout_, chunk) ? trailer.rows : 0;
}

bool Chunks::is_changed(std::uint64_t chunk) const {
  const Trailer trailer = read_trailer(File(layout_.path(chunk), Access::read), layout_);
  return is_valid(trailer, seed_, layout_, chunk) && is_changing(trailer);
}

std::vector<std::uint64_t> ChunkLayout::on_disk(bool coded) const {
  std::vector<std::uint64_t> found;
  DIR* entries = ::opendir(folder.c_str());
  if (entries == nullptr) throw IoError("cannot list", folder, errno);
  const std::string prefix = name + ".";
  while (const dirent* entry = ::readdir(entries)) {
    const std::string file = entry->d_name;
    if (file.compare(0, prefix.size(), prefix) != 0) continue;
    std::string digits = file.substr(prefix.size());
    const std::size_t suffix = digits.size() - std::min(digits.size(), kCodedSuffix.size());
    if ((digits.compare(suffix, std::string::npos, kCodedSuffix) == 0) != coded) continue;
    if (coded) digits.resize(suffix);
    if (digits.size() < 12 || digits.size() > kMostDigits) continue;
    if (digits.find_first_not_of("0123456789") != std::string::npos) continue;
    found.push_back(std::stoull(digits));
  }
  ::closedir(entries);
  std::sort(found.begin(), found.end());
  return found;
}

bool ChunkLayout::has_file(std::uint64_t chunk) const {
  return ::access(path(chunk).c_str(), F_OK) == 0 || ::access(coded_path(chunk).c_str(), F_OK) == 0;
}

std::uint64_t Chunks::disk_bytes() const {
  std::uint64_t total = 0;
  for (const bool coded : {false, true}) {
    for (const std::uint64_t chunk : layout_.on_disk(coded)) {
      const std::string path = coded ? layout_.coded_path(chunk) : layout_.path(chunk);
      struct stat status{};
      if (::stat(path.c_str(), &status) != 0) continue;
      total += static_cast<std::uint64_t>(status.st_blocks) * 512;
    }
  }
  return total;
}

void Chunks::advise(std::uint64_t begin, std::uint64_t end, int advice) const {
  while (begin < end) {
    const std::uint64_t position = begin % ring_rows_;
    const std::uint64_t count = std::min<std::uint64_t>(end - begin, ring_rows_ - position);
    const std::size_t page = page_bytes();
    const std::size_t from = position * layout_.row_bytes / page * page;
    const std::size_t to = (position + count) * layout_.row_bytes;
    ::madvise(base_ + from, to - from, advice);
    begin += count;
  }
}

void Chunks::will_need(std::uint64_t begin, std::uint64_t end) const {
  advise(begin, end, MADV_WILLNEED);
}

void Chunks::release_pages(std::uint64_t begin, std::uint64_t end) const {
  advise(begin, end, MADV_DONTNEED);
}

}  // namespace sharpwave
