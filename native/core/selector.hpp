// Which steps a batch holds. The draws themselves are methods of Replay, in selector.cpp.
#pragma once

#include <cstdint>

namespace sharpwave {

struct Selector {
  enum class Kind : std::uint8_t { uniform, recent, priority, none };
  Kind kind = Kind::uniform;
  std::uint64_t window = 0;  // recent: the newest this many steps
  // Windows of this many rows that were not drawn yet come first, if not 0; the rest of the batch
  // is of the kind.
  std::uint32_t fresh = 0;
};

}  // namespace sharpwave
