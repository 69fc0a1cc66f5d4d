// The element types of a field, and the casts between them that lose nothing a user would miss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sharpwave {

enum class DType : std::uint8_t {
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  float32,
  float64,
};

std::size_t item_size(DType dtype);
const char* name_of(DType dtype);
// Throws std::invalid_argument for a name that is not a supported dtype.
DType dtype_from_name(const std::string& name);

// Where a cast failed: the value and its position.
struct CastError {
  std::size_t index;
  double value;
};

// Casts n contiguous elements. Rounding to a narrower float is silent; a value out of range, a
// fraction or NaN into an integer is an error. Into `boolean`, any number but NaN is accepted and
// non-zero means true. Returns false and fills `error` at the first value that does not fit.
bool cast(DType from, const std::byte* source, DType to, std::byte* target, std::size_t n,
          CastError* error);

// The index of the first NaN or infinity, or n when all are finite. Integers are always finite.
std::size_t first_not_finite(DType dtype, const std::byte* source, std::size_t n);

// float16 <-> float32 by bits: no compiler support is assumed.
float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);

}  // namespace sharpwave
