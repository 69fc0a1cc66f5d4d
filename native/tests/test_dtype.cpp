#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "tests/check.hpp"
#include "tests/splitmix.hpp"

namespace {

using namespace sharpwave;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Casts one value from float64; `fits` tells whether it went in, and the result is read back as
// float64.
double cast_one(double value, DType to, bool* fits) {
  std::byte target[8];
  double back = 0.0;
  CastError error{};
  *fits = cast(DType::float64, reinterpret_cast<std::byte*>(&value), to, target, 1, &error);
  if (!*fits) {
    CHECK(error.index == 0);
    CHECK(error.value == value || std::isnan(value));
    return 0.0;
  }
  CHECK(cast(to, target, DType::float64, reinterpret_cast<std::byte*>(&back), 1, &error));
  return back;
}

void names_and_sizes_agree() {
  const std::vector<std::pair<std::string, std::size_t>> expected = {
      {"bool", 1},   {"int8", 1},   {"int16", 2},  {"int32", 4},   {"int64", 8},   {"uint8", 1},
      {"uint16", 2}, {"uint32", 4}, {"uint64", 8}, {"float16", 2}, {"float32", 4}, {"float64", 8}};
  for (const auto& [name, size] : expected) {
    CHECK(name_of(dtype_from_name(name)) == name);
    CHECK(item_size(dtype_from_name(name)) == size);
  }
  CHECK_THROWS(std::invalid_argument, dtype_from_name("complex64"));
}

void integers_take_only_what_they_hold() {
  struct Range {
    DType dtype;
    double low;
    double high;
  };
  const Range ranges[] = {
      {DType::int8, -128.0, 127.0},          {DType::uint8, 0.0, 255.0},
      {DType::int16, -32768.0, 32767.0},     {DType::uint16, 0.0, 65535.0},
      {DType::int32, -0x1p31, 0x1p31 - 1.0}, {DType::uint32, 0.0, 0x1p32 - 1.0},
  };
  for (const Range& range : ranges) {
    bool fits = false;
    CHECK(cast_one(range.low, range.dtype, &fits) == range.low && fits);
    CHECK(cast_one(range.high, range.dtype, &fits) == range.high && fits);
    for (const double value :
         {range.low - 1.0, range.high + 1.0, 0.5, range.high - 0.5, kNan, kInf, -kInf, 1e300}) {
      cast_one(value, range.dtype, &fits);
      CHECK(!fits);
    }
  }
  bool fits = false;
  CHECK(cast_one(-0x1p63, DType::int64, &fits) == -0x1p63 && fits);
  CHECK((cast_one(0x1p63, DType::int64, &fits), !fits));
  CHECK(cast_one(0x1p63, DType::uint64, &fits) == 0x1p63 && fits);
  CHECK((cast_one(0x1p64, DType::uint64, &fits), !fits));
  CHECK((cast_one(-1.0, DType::uint64, &fits), !fits));
}

void signs_matter_between_integers() {
  const std::int64_t minus = -1;
  const std::uint64_t large = ~std::uint64_t{0};
  std::byte target[8];
  CastError error{};
  for (const DType dtype : {DType::uint8, DType::uint32, DType::uint64}) {
    CHECK(
        !cast(DType::int64, reinterpret_cast<const std::byte*>(&minus), dtype, target, 1, &error));
    CHECK(error.value == -1.0);
  }
  for (const DType dtype : {DType::int8, DType::int64}) {
    CHECK(
        !cast(DType::uint64, reinterpret_cast<const std::byte*>(&large), dtype, target, 1, &error));
  }
}

void floats_round_but_do_not_overflow() {
  bool fits = false;
  CHECK(cast_one(0.1, DType::float32, &fits) == static_cast<double>(0.1F) && fits);
  CHECK((cast_one(1e40, DType::float32, &fits), !fits));
  CHECK((cast_one(-1e40, DType::float32, &fits), !fits));
  CHECK(cast_one(kInf, DType::float32, &fits) == kInf && fits);
  CHECK(std::isnan(cast_one(kNan, DType::float32, &fits)) && fits);
  CHECK(cast_one(65504.0, DType::float16, &fits) == 65504.0 && fits);
  CHECK((cast_one(65520.0, DType::float16, &fits), !fits));
  CHECK(cast_one(-kInf, DType::float16, &fits) == -kInf && fits);
  // Rounding to float32 first would lose the last digit and then go down at a tie.
  CHECK(cast_one(1.0 + 0x1p-11 + 0x1p-40, DType::float16, &fits) == 1.0 + 0x1p-10 && fits);
  CHECK(cast_one(1.0 + 0x1p-11 - 0x1p-40, DType::float16, &fits) == 1.0 && fits);
  CHECK(cast_one(-1e-300, DType::float16, &fits) == 0.0 && fits);
}

void any_number_but_nan_is_a_flag() {
  bool fits = false;
  for (const double value : {1.0, -2.0, 0.5, 1e300, kInf}) {
    CHECK(cast_one(value, DType::boolean, &fits) == 1.0 && fits);
  }
  CHECK(cast_one(0.0, DType::boolean, &fits) == 0.0 && fits);
  CHECK((cast_one(kNan, DType::boolean, &fits), !fits));
  const std::uint8_t two = 2;  // a bool of another library
  std::uint8_t number = 0;
  CastError error{};
  CHECK(cast(DType::boolean, reinterpret_cast<const std::byte*>(&two), DType::uint8,
             reinterpret_cast<std::byte*>(&number), 1, &error));
  CHECK(number == 1);
}

void halves_survive_the_round_trip() {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    const bool nan = (half & 0x7fffU) > 0x7c00U;
    CHECK(std::isnan(value) == nan);
    CHECK(nan ? std::isnan(half_to_float(float_to_half(value))) : float_to_half(value) == half);
  }
  CHECK(half_to_float(0x0001) == 0x1p-24F);
  CHECK(half_to_float(0x3c00) == 1.0F);
  CHECK(half_to_float(0xfbff) == -65504.0F);
}

// Every float between two neighboring halves rounds to the nearer, at a tie to the even one.
void halves_round_to_the_nearest() {
  for (std::uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = half_to_float(half);
    const float high = half_to_float(static_cast<std::uint16_t>(half + 1));
    const float middle = low + (high - low) / 2.0F;  // exact: a half has 13 bits to spare
    const auto even = static_cast<std::uint16_t>((half & 1) == 0 ? half : half + 1);
    CHECK(float_to_half(middle) == even);
    CHECK(float_to_half(std::nextafter(middle, low)) == half);
    CHECK(float_to_half(std::nextafter(middle, high)) == half + 1);
    CHECK(float_to_half(-middle) == (even | 0x8000U));
  }
}

void the_first_misfit_is_reported() {
  const double values[] = {1.0, 2.0, 3.5, kNan};
  std::byte target[4];
  CastError error{};
  CHECK(!cast(DType::float64, reinterpret_cast<const std::byte*>(values), DType::int8, target, 4,
              &error));
  CHECK(error.index == 2 && error.value == 3.5);
}

void infinities_are_found() {
  std::vector<float> values(100, 1.0F);
  const auto* data = reinterpret_cast<const std::byte*>(values.data());
  CHECK(first_not_finite(DType::float32, data, values.size()) == 100);
  values[77] = std::numeric_limits<float>::infinity();
  CHECK(first_not_finite(DType::float32, data, values.size()) == 77);
  values[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(first_not_finite(DType::float32, data, values.size()) == 5);
  CHECK(first_not_finite(DType::int32, data, values.size()) == 100);
  const std::uint16_t halves[] = {0x3c00, 0x7c00};
  CHECK(first_not_finite(DType::float16, reinterpret_cast<const std::byte*>(halves), 2) == 1);
}

void memory_need_not_be_aligned() {
  std::vector<std::byte> source(8 * 10 + 1);
  std::vector<std::byte> target(4 * 10 + 1);
  SplitMix random(2);
  for (int i = 0; i < 10; ++i) {
    const double value = random.uniform();
    std::memcpy(source.data() + 1 + 8 * i, &value, 8);
  }
  CastError error{};
  CHECK(cast(DType::float64, source.data() + 1, DType::float32, target.data() + 1, 10, &error));
}

}  // namespace

int main() {
  names_and_sizes_agree();
  integers_take_only_what_they_hold();
  signs_matter_between_integers();
  floats_round_but_do_not_overflow();
  any_number_but_nan_is_a_flag();
  halves_survive_the_round_trip();
  halves_round_to_the_nearest();
  the_first_misfit_is_reported();
  infinities_are_found();
  memory_need_not_be_aligned();
}
