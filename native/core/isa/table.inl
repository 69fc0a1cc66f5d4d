// The body of every kernels_<isa>.cpp. Defines `make_table()` for the instruction set being compiled.
#include <cstddef>
#include <cstdint>

#include "core/isa/kernels.hpp"

namespace sharpwave {
namespace {

#include "core/isa/returns.inl"

constexpr ReturnsKernels returns_table() { return {gae_one<float>, gae_one<double>}; }

}  // namespace
}  // namespace sharpwave
