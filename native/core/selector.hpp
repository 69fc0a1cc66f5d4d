// Which steps a batch holds. The draws themselves are methods of Replay, in selector.cpp.
#pragma once

#include <cstdint>

namespace sharpwave {

struct Selector {
  enum class Kind : std::uint8_t { uniform, recent, priority };
  Kind kind = Kind::uniform;
  std::uint64_t window = 0;  // recent: the newest this many steps
};

}  // namespace sharpwave
