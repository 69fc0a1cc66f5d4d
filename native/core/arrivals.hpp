// Windows of arrivals: a row per observation, with the action and the reward that led there. The
// last observation of an episode is a row too, although no step begins there.
#pragma once

#include <cstdint>
#include <vector>

#include "core/view.hpp"

namespace sharpwave {

// True when the window that begins with the step may be drawn: its rows are there, and the step
// that led to its first one is not overwritten.
bool accepts_arrivals(const View& view, const Streams& streams, Anchor anchor);

// The step of its last row.
std::uint64_t last_of_arrivals(const View& view, const Streams& streams, Anchor anchor);

// Fills `steps` and `is_end` for every row, `current` with the slots of the steps that begin there,
// `next` with those of the observations, and `last` with those of the steps that led there. In the
// transition layout the observation after an episode's last step has no slot of its own.
void resolve_arrivals(const View& view, const Schema& schema, Layout layout, const Streams& streams,
                      const std::vector<Anchor>& anchors, Slots* slots);

void emit_arrivals(const Schema& schema, Layout layout, const RowStore& store,
                   const Streams& streams, const std::vector<Anchor>& anchors, const Slots& slots,
                   const BatchOut& out);

}  // namespace sharpwave
