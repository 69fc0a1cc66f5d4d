// What a drawn step becomes: one transition, an n-step transition, or a window of steps.
#pragma once

#include <cstdint>
#include <vector>

#include "core/gather.hpp"
#include "core/row_store.hpp"
#include "core/streams.hpp"

namespace sharpwave {

struct View {
  enum class Kind : std::uint8_t { transition, n_step, sequence };
  // Which windows that leave their episode are drawn, with the missing steps masked:
  // none; tail: all of them; whole: only those that hold a whole episode.
  enum class Pad : std::uint8_t { none, tail, whole };

  Kind kind = Kind::transition;
  std::uint32_t n = 1;        // n_step: how many steps at most
  double gamma = 1.0;         // n_step, and the discounts of a sequence
  std::uint32_t length = 1;   // sequence: steps from the anchor on
  std::uint32_t burn_in = 0;  // sequence: steps before the anchor
  std::uint32_t stride = 1;   // sequence: anchors are this many steps apart in an episode
  Pad pad = Pad::none;
  bool cross = false;     // sequence: windows may run on into the next episode
  bool arrivals = false;  // sequence: a row is an observation and what led there (arrivals.hpp)

  bool needs_neighbors() const { return kind != Kind::transition; }
  std::size_t rows() const { return kind == Kind::sequence ? std::size_t{length} + burn_in : 1; }
};

// The id of a row of arrivals that is no step: the last observation of an episode, or none.
inline constexpr std::uint64_t kNoStep = ~std::uint64_t{0};

// The arrays of a batch. Null pointers are left out.
struct BatchOut {
  std::vector<std::byte*> fields;    // by index of the schema's field
  std::uint64_t* indices = nullptr;  // of the drawn steps; of arrivals, of every row
  float* weights = nullptr;
  float* discounts = nullptr;
  std::uint8_t* mask = nullptr;
  std::uint8_t* is_first = nullptr;
  std::uint8_t* is_last = nullptr;      // arrivals: the last observation of an episode
  std::uint8_t* is_terminal = nullptr;  // arrivals: and the episode terminated there
};

// True when the anchor, a live step, may be drawn for this view.
bool accepts(const View& view, const Streams& streams, Anchor anchor);

// The seq of the last step in the window of an anchor that is accepted without padding.
std::uint64_t last_step(const View& view, const Streams& streams, Anchor anchor);

// The slots that a batch of anchors reads: `current` for the steps, `next` for their next
// observations, and for n-step views `last` for the steps at which they end. For arrivals see
// arrivals.hpp.
struct Slots {
  std::vector<std::uint64_t> current;
  std::vector<std::uint64_t> next;
  std::vector<std::uint64_t> last;
  std::vector<std::uint32_t> taken;  // n_step: steps really taken
  std::vector<std::uint64_t> steps;  // sequence: the seq of every row, or kNoSlot
  std::vector<std::uint8_t> is_end;  // arrivals: the row is what the last step of an episode led to
};

void resolve(const View& view, const Schema& schema, Layout layout, const Streams& streams,
             const std::vector<Anchor>& anchors, Slots* slots);

// Copies the rows into the arrays.
void emit(const View& view, const Schema& schema, Layout layout, const RowStore& store,
          const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
          const BatchOut& out);

}  // namespace sharpwave
