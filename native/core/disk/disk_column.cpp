#include "core/disk/disk_column.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace sharpwave {
namespace {

constexpr std::size_t kFirstChunks = 16;

}  // namespace

DiskColumn::DiskColumn(const std::string& folder, const ColumnSpec& spec, Access access,
                       std::uint32_t identity, FlushedRows flushed)
    : layout_{folder, spec.name, spec.row_bytes, spec.chunk_rows, kFirstChunks, false, identity},
      access_(access),
      row_bytes_(spec.row_bytes),
      chunk_rows_(spec.chunk_rows),
      block_rows_(spec.block_rows),
      ring_rows_(layout_.ring_rows()),
      chunks_(std::make_unique<Chunks>(layout_, access)) {
  chunks_->set_flushed(flushed);
}

void DiskColumn::open(std::uint64_t front, std::uint64_t top, std::vector<ChunkCheck>* damage) {
  if (has_old(front)) {
    chunks_->drop_before(front);
    front_ = front;
  }
  top_ = std::max(top_, top);
  if (must_grow(top)) grow(top);
  chunks_->open(front, top, damage);
  if (access_ == Access::read) return;
  for (const std::uint64_t chunk : chunks_->on_disk()) {
    if (chunk < front / chunk_rows_ || chunk * chunk_rows_ >= top) {
      remove_file(layout_.path(chunk));
    }
  }
  for (const std::uint64_t chunk : layout_.on_disk(true)) {
    if (!chunks_->is_coded(chunk)) remove_file(layout_.coded_path(chunk));
  }
}

void DiskColumn::grow(std::uint64_t end) {
  const std::uint64_t needed = (end - 1) / chunk_rows_ + 1 - front_chunk();
  ChunkLayout larger = layout_;
  larger.max_chunks = std::max<std::size_t>(layout_.max_chunks * 2, needed);
  auto chunks = std::make_unique<Chunks>(larger, access_);
  chunks->set_flushed(chunks_->flushed());
  const std::uint64_t mapped = access_ == Access::read ? top_ : chunks_->reserved();
  std::vector<ChunkCheck> absent;  // of a reader: chunks still to be opened, or gone for good
  chunks->open(front_, mapped, access_ == Access::read ? &absent : nullptr);
  layout_ = std::move(larger);
  ring_rows_ = layout_.ring_rows();
  chunks_ = std::move(chunks);
  present_.clear();
  decoded_.clear();
  decoded_bytes_ = 0;
}

void DiskColumn::drop_before(std::uint64_t front, std::vector<std::string>* files) {
  if (!has_old(front)) return;
  chunks_->drop_before(front, files);
  front_ = front;
}

bool DiskColumn::is_present(std::uint64_t r) const {
  const std::uint64_t chunk = r / chunk_rows_;
  if (!chunks_->is_coded(chunk)) return true;
  const auto found = present_.find(chunk);
  return found != present_.end() && found->second[block_of(r)];
}

void DiskColumn::install(std::uint64_t chunk, std::uint64_t block, const std::byte* rows,
                         std::size_t bytes) {
  if (!chunks_->is_coded(chunk)) return;  // it went away meanwhile
  const std::uint64_t first = block * block_rows_;
  const std::uint64_t expected = std::min<std::uint64_t>(block_rows_, chunk_rows_ - first);
  if (first >= chunk_rows_ || bytes != expected * row_bytes_) {
    throw std::invalid_argument("a block must have the rows of its place");
  }
  std::vector<bool>& present = present_[chunk];
  if (present.empty()) {
    present.resize((chunk_rows_ + block_rows_ - 1) / block_rows_);
    decoded_.push_back(chunk);
  }
  if (present[block]) return;
  std::memcpy(row(chunk * chunk_rows_ + first), rows, bytes);
  present[block] = true;
  decoded_bytes_ += bytes;
}

std::string DiskColumn::adopt_coded(std::uint64_t chunk) {
  chunks_->hold_in_memory(chunk);
  return layout_.path(chunk);
}

bool DiskColumn::forget_oldest(const std::vector<std::uint64_t>& kept) {
  const auto oldest = std::find_if(decoded_.begin(), decoded_.end(), [&](std::uint64_t chunk) {
    return std::find(kept.begin(), kept.end(), chunk) == kept.end();
  });
  if (oldest == decoded_.end()) return false;
  const std::uint64_t chunk = *oldest;
  const std::vector<bool>& present = present_[chunk];
  for (std::size_t block = 0; block < present.size(); ++block) {
    if (!present[block]) continue;
    const std::size_t first = block * block_rows_;
    decoded_bytes_ -= std::min(block_rows_, chunk_rows_ - first) * row_bytes_;
  }
  if (chunks_->is_coded(chunk)) chunks_->hold_in_memory(chunk);
  present_.erase(chunk);
  decoded_.erase(oldest);
  return true;
}

void DiskColumn::write(std::uint64_t first, std::size_t n, Source source) {
  if (n == 1) {
    std::memcpy(row(first), source.data, row_bytes_);
    return;
  }
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t slot = (first + done) % ring_rows_;
    const std::size_t run = std::min<std::size_t>(n - done, ring_rows_ - slot);
    std::byte* target = chunks_->base() + slot * row_bytes_;
    const std::byte* from = source.data + done * source.stride;
    if (source.stride == row_bytes_) {
      std::memcpy(target, from, run * row_bytes_);
    } else {
      for (std::size_t i = 0; i < run; ++i) {
        std::memcpy(target + i * row_bytes_, from + i * source.stride, row_bytes_);
      }
    }
    done += run;
  }
}

void DiskColumn::read(std::uint64_t first, std::size_t n, std::byte* target) const {
  for (std::size_t done = 0; done < n;) {
    const std::uint64_t slot = (first + done) % ring_rows_;
    const std::size_t run = std::min<std::size_t>(n - done, ring_rows_ - slot);
    std::memcpy(target + done * row_bytes_, base() + slot * row_bytes_, run * row_bytes_);
    done += run;
  }
}

}  // namespace sharpwave
