// Memory of large output arrays, kept for the next call. Fresh pages cost several times the work of
// a kernel that fills them once, and training asks for the same sizes over and over.
#pragma once

#include <cstddef>

#include "bind/arrays.hpp"

namespace sharpwave::bind {

constexpr std::size_t kSmallestRecycled = std::size_t{256} << 10;

// A new uninitialized array. From kSmallestRecycled bytes on its memory comes from blocks of arrays
// that are gone.
Ref new_output_array(int ndim, const npy_intp* shape, int type);

}  // namespace sharpwave::bind
