#include "core/dtype.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace sharpwave {
namespace {

constexpr std::array<const char*, 12> kNames = {"bool",   "int8",    "int16",   "int32",
                                                "int64",  "uint8",   "uint16",  "uint32",
                                                "uint64", "float16", "float32", "float64"};
constexpr std::array<std::size_t, 12> kSizes = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8};

struct Half {
  std::uint16_t bits;
};

// Calls `body` with a value of the C++ type that stands for `dtype`.
template <typename Body>
auto with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::boolean:
      return body(bool{});
    case DType::int8:
      return body(std::int8_t{});
    case DType::int16:
      return body(std::int16_t{});
    case DType::int32:
      return body(std::int32_t{});
    case DType::int64:
      return body(std::int64_t{});
    case DType::uint8:
      return body(std::uint8_t{});
    case DType::uint16:
      return body(std::uint16_t{});
    case DType::uint32:
      return body(std::uint32_t{});
    case DType::uint64:
      return body(std::uint64_t{});
    case DType::float16:
      return body(Half{});
    case DType::float32:
      return body(float{});
    case DType::float64:
      break;
  }
  return body(double{});
}

template <typename T>
T load(const std::byte* source, std::size_t i) {
  if constexpr (std::is_same_v<T, bool>)
    return source[i] != std::byte{0};  // not only 0 and 1 occur
  T value{};
  std::memcpy(&value, source + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
auto widen(T value) {
  if constexpr (std::is_same_v<T, Half>)
    return half_to_float(value.bits);
  else
    return value;
}

template <typename T>
bool is_finite(T value) {
  return std::abs(value) <= std::numeric_limits<T>::max();
}

// As float32, with the last bit set where digits were lost: a second rounding then goes the way the
// first one would have gone.
template <typename T>
float round_to_odd(T value) {
  const auto narrow = static_cast<float>(value);
  if constexpr (std::is_same_v<T, double>) {
    const auto bits = std::bit_cast<std::uint32_t>(narrow);
    if (static_cast<double>(narrow) == value || std::isnan(value) || (bits & 1U) != 0)
      return narrow;
    const bool rounded_down = std::fabs(value) > std::fabs(static_cast<double>(narrow));
    return std::bit_cast<float>(rounded_down ? bits + 1 : bits - 1);
  }
  return narrow;
}

// True when `value` fits To; then `result` holds it.
template <typename To, typename From>
bool convert(From value, To* result) {
  if constexpr (std::is_same_v<To, bool>) {
    *result = value != From(0);
    return value == value;
  } else if constexpr (std::is_same_v<To, Half>) {
    result->bits = float_to_half(round_to_odd(value));
    const bool overflowed = (result->bits & 0x7fffU) == 0x7c00U;
    return !overflowed || std::isinf(static_cast<double>(value));
  } else if constexpr (std::is_floating_point_v<To>) {
    *result = static_cast<To>(value);
    if constexpr (sizeof(To) < sizeof(From) && std::is_floating_point_v<From>) {
      return static_cast<int>(is_finite(*result)) | static_cast<int>(!is_finite(value));
    }
    return true;
  } else if constexpr (std::is_floating_point_v<From>) {
    // The bounds are powers of two (or zero), so they are exact in From; NaN fails both
    // comparisons.
    constexpr double kLow = static_cast<double>(std::numeric_limits<To>::min());
    constexpr double kHigh =
        2.0 * static_cast<double>(To(1) << (std::numeric_limits<To>::digits - 1));
    const double wide = static_cast<double>(value);
    if (!(wide >= kLow && wide < kHigh) || wide != std::trunc(wide)) return false;
    *result = static_cast<To>(value);
    return true;
  } else {
    *result = static_cast<To>(value);
    return static_cast<From>(*result) == value && (*result < To(0)) == (value < From(0));
  }
}

}  // namespace

std::size_t item_size(DType dtype) { return kSizes[static_cast<std::size_t>(dtype)]; }

const char* name_of(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

DType dtype_from_name(const std::string& name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<DType>(i);
  }
  throw std::invalid_argument(
      "dtype must be bool, an integer of 8 to 64 bits, float16, float32 or float64, got " + name);
}

bool cast(DType from, const std::byte* source, DType to, std::byte* target, std::size_t n,
          CastError* error) {
  return with_type(from, [&](auto from_zero) {
    using From = decltype(from_zero);
    return with_type(to, [&](auto to_zero) {
      using To = decltype(to_zero);
      // No way out of the loop, so that it becomes vector code; a failure is looked for afterwards.
      bool fits = true;
      for (std::size_t i = 0; i < n; ++i) {
        To result{};
        fits &= convert<To>(widen(load<From>(source, i)), &result);
        std::memcpy(target + i * sizeof(To), &result, sizeof(To));
      }
      for (std::size_t i = 0; !fits && i < n; ++i) {
        To result{};
        const auto value = widen(load<From>(source, i));
        if (convert<To>(value, &result)) continue;
        *error = {i, static_cast<double>(value)};
        return false;
      }
      return fits;
    });
  });
}

std::size_t first_not_finite(DType dtype, const std::byte* source, std::size_t n) {
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, Half>) {
      bool finite = true;
      if constexpr (std::is_same_v<T, float>) {
        // Integers without a way out of the loop become vector code; booleans do not.
        constexpr std::uint32_t kInfinite = 0x7f800000;
        std::uint32_t found = 0;
        for (std::size_t i = 0; i < n; ++i) {
          std::uint32_t bits;
          std::memcpy(&bits, source + i * sizeof bits, sizeof bits);
          found |= (bits & kInfinite) == kInfinite ? 1U : 0U;
        }
        finite = found == 0;
      } else {
        for (std::size_t i = 0; i < n; ++i) finite &= is_finite(widen(load<T>(source, i)));
      }
      for (std::size_t i = 0; !finite && i < n; ++i) {
        if (!is_finite(widen(load<T>(source, i)))) return i;
      }
    }
    return n;
  });
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {  // zero and subnormals: mantissa * 2**-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;   // NaN
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000U) {                        // subnormal: let the adder round at 2**-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return sign | static_cast<std::uint16_t>((rounded - 0x38000000U) >> 13);
}

}  // namespace sharpwave
