// The body of every kernels_<isa>.cpp. Defines `make_table()` for the instruction set being
// compiled.
#include <cstddef>
#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

#include "core/isa/returns.inl"
#include "core/isa/tree.inl"

constexpr ReturnsKernels returns_table() { return {gae_one<float>, gae_one<double>}; }

constexpr TreeKernels tree_table() {
  return {refresh_path, refresh_nodes, refresh_range, tree_find, power, ratio_power};
}

}  // namespace
}  // namespace sharpwave
