#include "core/anchors.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/rng.hpp"

namespace sharpwave {

Anchors::Anchors(std::vector<std::int64_t> counts, std::vector<std::int64_t> starts,
                 std::int64_t stride)
    : ends_(std::move(counts)), starts_(std::move(starts)), stride_(stride) {
  if (starts_.size() != ends_.size()) {
    throw std::invalid_argument("starts must have length " + std::to_string(ends_.size()) +
                                " like counts, got " + std::to_string(starts_.size()));
  }
  if (stride_ < 1) throw std::invalid_argument("stride must be positive");
  for (std::int64_t& count : ends_) {
    if (count < 0) throw std::invalid_argument("counts must not be negative");
    if (count > std::numeric_limits<std::int64_t>::max() - size_) {
      throw std::invalid_argument("counts must add up to less than 2**63");
    }
    count = size_ += count;
  }
  // About four buckets an episode: most of them then lie within one.
  const auto episodes = static_cast<std::int64_t>(ends_.size());
  while ((size_ >> shift_) > 4 * episodes) ++shift_;
  first_.reserve(static_cast<std::size_t>(size_ >> shift_) + 2);
  std::int64_t episode = 0;
  for (std::int64_t bucket = 0; bucket <= (size_ >> shift_); ++bucket) {
    while (episode + 1 < episodes && ends_[static_cast<std::size_t>(episode)] <= bucket << shift_) {
      ++episode;
    }
    first_.push_back(episode);
  }
  first_.push_back(std::max<std::int64_t>(episodes - 1, 0));
}

void Anchors::choose(std::vector<std::int64_t> chosen) {
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] < (i == 0 ? 0 : chosen[i - 1] + 1) || chosen[i] >= size_) {
      throw std::invalid_argument("chosen must be ascending numbers below " +
                                  std::to_string(size_) + ", got " + std::to_string(chosen[i]));
    }
  }
  size_ = static_cast<std::int64_t>(chosen.size());
  chosen_ = std::move(chosen);
  all_ = false;
}

Anchors::Place Anchors::find(std::int64_t number) const {
  if (!all_) number = chosen_[static_cast<std::size_t>(number)];
  const auto bucket = static_cast<std::size_t>(number >> shift_);
  auto episode = static_cast<std::size_t>(first_[bucket]);
  if (number >= ends_[episode]) {
    const auto last = static_cast<std::size_t>(first_[bucket + 1]);
    const auto from = ends_.begin() + static_cast<std::ptrdiff_t>(episode) + 1;
    const auto to = ends_.begin() + static_cast<std::ptrdiff_t>(last);
    episode = static_cast<std::size_t>(std::upper_bound(from, to, number) - ends_.begin());
  }
  const std::int64_t begin = episode == 0 ? 0 : ends_[episode - 1];
  const std::int64_t step = (number - begin) * stride_;
  return {static_cast<std::int64_t>(episode), step, starts_[episode] + step};
}

void Anchors::find(const std::int64_t* numbers, std::size_t n, const Places& out) const {
  for (std::size_t i = 0; i < n; ++i) {
    if (numbers[i] < 0 || numbers[i] >= size_) {
      throw std::out_of_range("items must be in [0, " + std::to_string(size_) + "), got " +
                              std::to_string(numbers[i]));
    }
  }
  for (std::size_t i = 0; i < n; ++i) out.put(i, find(numbers[i]));
}

void Anchors::span(std::int64_t begin, std::int64_t end, const std::uint64_t* key,
                   const Places& out) const {
  if (begin < 0 || begin > end || end > size_) {
    throw std::out_of_range("begin and end must be in [0, " + std::to_string(size_) + "], got " +
                            std::to_string(begin) + " and " + std::to_string(end));
  }
  const auto n = static_cast<std::size_t>(end - begin);
  if (key == nullptr) {
    for (std::size_t i = 0; i < n; ++i) out.put(i, find(begin + static_cast<std::int64_t>(i)));
    return;
  }
  const Permutation permutation(static_cast<std::uint64_t>(size_), Philox(*key, 0));
  const auto from = static_cast<std::uint64_t>(begin);
  // In two loops: the first is arithmetic that overlaps, the second waits for memory and branches.
  for (std::size_t i = 0; i < n; ++i) {
    out.rows[i] = static_cast<std::int64_t>(permutation(from + i));
  }
  for (std::size_t i = 0; i < n; ++i) out.put(i, find(out.rows[i]));
}

void draw_windows(const std::int64_t* episodes, const std::int64_t* first_rows,
                  const std::int64_t* lengths, std::size_t n, std::int64_t width, std::uint64_t key,
                  const Windows& out) {
  constexpr std::uint32_t kPurpose = 0x77696e64U;
  if (width < 1) throw std::invalid_argument("width must be positive");
  for (std::size_t i = 0; i < n; ++i) {
    if (lengths[i] < 1) throw std::invalid_argument("lengths must be positive");
  }
  const Philox generator(key, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t length = std::min(lengths[i], width);
    const auto places = static_cast<std::uint64_t>(lengths[i] - length + 1);
    const auto episode = static_cast<std::uint64_t>(episodes[i]);
    const auto step = static_cast<std::int64_t>(generator.below(places, episode, 0, kPurpose));
    out.steps[i] = step;
    out.rows[i] = first_rows[i] + step;
    out.lengths[i] = length;
  }
}

}  // namespace sharpwave
