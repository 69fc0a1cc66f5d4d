// Copies chosen rows out of a store, row by row, with the rows to come prefetched: a large buffer
// is limited by cache and TLB misses, not by instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa/rows_kernels.hpp"
#include "core/row_store.hpp"

namespace sharpwave {

// Columns of the same slots must stand together.
void gather(const RowStore& store, const GatherColumn* columns, std::size_t n_columns,
            std::size_t n_rows);

// The same of windows, whose rows are neighbors in the store. Long records are gone through once,
// for all columns: a pass for each would find them in memory again.
void gather_windows(const RowStore& store, const GatherColumn* columns, std::size_t n_columns,
                    std::size_t n_rows);

// One stacked output array: row i holds the frames of slots[i] - stack + 1 ... slots[i], oldest
// first, in the ring of slots_per_stream slots that slots[i] belongs to.
void gather_stack(const RowStore& store, const GatherColumn& column, const FrameShape& frames,
                  std::size_t slots_per_stream, std::size_t n_rows);

// Copies `frame` of a [outer, stack, inner] array to a contiguous frame.
void copy_frame(const FrameShape& frames, const std::byte* stacked, std::size_t frame,
                std::byte* target);
// True when the contiguous frame equals `frame` of the stacked array.
bool equal_frame(const FrameShape& frames, const std::byte* stacked, std::size_t frame,
                 const std::byte* contiguous);

}  // namespace sharpwave
