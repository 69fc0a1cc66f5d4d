// Compressed chunks of an EpisodeStore: full ones are handed out, and their rows come back.
#include <algorithm>
#include <mutex>

#include "core/disk/episode_store.hpp"

namespace sharpwave {

void EpisodeStore::install(const std::vector<CodedBlock>& blocks,
                           const std::vector<const std::byte*>& rows,
                           const std::vector<std::size_t>& bytes) {
  const std::lock_guard<RwLock> mapping(mapping_lock_);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].block == CodedBlock::kPresent) continue;
    steps_.at(blocks[i].column)->install(blocks[i].chunk, blocks[i].block, rows[i], bytes[i]);
  }
  const auto total = [&] {
    std::size_t sum = 0;
    for (const auto& column : steps_) sum += column->decoded_bytes();
    return sum;
  };
  for (std::size_t number = 0; number < steps_.size() && total() > options_.decoded_bytes;
       ++number) {
    std::vector<std::uint64_t> kept;  // what was just wanted
    for (const CodedBlock& block : blocks) {
      if (block.column == number) kept.push_back(block.chunk);
    }
    while (total() > options_.decoded_bytes && steps_[number]->forget_oldest(kept)) continue;
  }
}

std::vector<std::uint64_t> EpisodeStore::compressible(std::size_t number) {
  check_writer();
  caretaker_.drain();
  const DiskColumn& column = *steps_.at(number);
  std::vector<std::uint64_t> found;
  // Only what outlives the loss of power: a chunk that lost its end would have to be written to.
  const std::uint64_t end = std::min(written_[kStepsTop], steps_top());
  const std::size_t rows = column.chunk_rows();
  for (std::uint64_t chunk = (steps_front() + rows - 1) / rows; (chunk + 1) * rows <= end;
       ++chunk) {
    if (!column.chunks().is_coded(chunk)) found.push_back(chunk);
  }
  return found;
}

void EpisodeStore::adopt_coded(std::size_t number, std::uint64_t chunk) {
  check_writer();
  caretaker_.drain();
  std::string file;
  {
    const std::lock_guard<std::mutex> structure(structure_mutex_);
    const std::lock_guard<RwLock> mapping(mapping_lock_);
    file = steps_.at(number)->adopt_coded(chunk);
  }
  remove_file(file);
}

}  // namespace sharpwave
