// Hindsight goals (Andrychowicz et al., 2017): for each drawn step, a later or other step of its
// episode whose achieved goal takes the place of the desired one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rng.hpp"
#include "core/streams.hpp"

namespace sharpwave {

enum class GoalStrategy : std::uint8_t { future, final, episode };

// For every anchor, whether it is relabeled (with probability `ratio`) and the step to take the
// goal from: one at or after the anchor (future), the last of the episode (final), or any of the
// episode (episode).
inline void choose_goals(const Streams& streams, const std::vector<Anchor>& anchors,
                         GoalStrategy strategy, double ratio, const Philox& generator,
                         std::uint8_t* relabeled, std::vector<Anchor>* goals) {
  constexpr std::uint32_t kWhether = 0x68657230U;
  constexpr std::uint32_t kWhich = 0x68657231U;
  goals->resize(anchors.size());
  for (std::size_t row = 0; row < anchors.size(); ++row) {
    const Anchor anchor = anchors[row];
    relabeled[row] = generator.unit(row, 0, kWhether) < ratio;
    const std::uint64_t last = streams.last_of(anchor, streams.slots_per_stream());
    std::uint64_t first = anchor.seq;
    if (strategy == GoalStrategy::final) first = last;
    if (strategy == GoalStrategy::episode) first = streams.first_of(anchor);
    (*goals)[row] = {first + generator.below(last - first + 1, row, 0, kWhich), anchor.stream};
  }
}

}  // namespace sharpwave
