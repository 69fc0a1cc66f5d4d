#include "core/schema.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace sharpwave {
namespace {

constexpr std::array<const char*, 7> kRoles = {"obs",        "next_obs",  "action", "reward",
                                               "terminated", "truncated", "extra"};

constexpr std::size_t kMaxDims = 30;  // an array has more: those of a batch and a window

void require(bool condition, const Field& field, const std::string& message) {
  if (!condition) throw std::invalid_argument("field '" + field.name + "': " + message);
}

}  // namespace

Role role_from_name(const std::string& name) {
  for (std::size_t i = 0; i < kRoles.size(); ++i) {
    if (name == kRoles[i]) return static_cast<Role>(i);
  }
  throw std::invalid_argument("role must be one of the known roles, got " + name);
}

const char* name_of(Role role) { return kRoles[static_cast<std::size_t>(role)]; }

std::size_t Field::items() const {
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  return count;
}

FrameShape frame_shape(const Field& field) {
  FrameShape frames{1, static_cast<std::size_t>(field.stack), item_size(field.dtype)};
  if (field.stack == 1) return {1, 1, field.bytes()};
  for (int axis = 0; axis < static_cast<int>(field.shape.size()); ++axis) {
    const auto dim = static_cast<std::size_t>(field.shape[static_cast<std::size_t>(axis)]);
    if (axis < field.stack_axis) frames.outer *= dim;
    if (axis > field.stack_axis) frames.inner *= dim;
  }
  return frames;
}

void Schema::validate() const {
  if (fields.empty()) throw std::invalid_argument("fields must name at least one field");
  for (const Field& field : fields) {
    require(field.shape.size() <= kMaxDims, field,
            "shape must have at most " + std::to_string(kMaxDims) + " dimensions, got " +
                std::to_string(field.shape.size()));
    // The bound keeps every product of sizes far from overflow.
    std::size_t items = 1;
    for (const std::int64_t dim : field.shape) {
      require(dim > 0, field,
              "every dimension of shape must be at least 1, got " + std::to_string(dim));
      items *= static_cast<std::size_t>(dim);
      require(dim < (std::int64_t{1} << 32) && items < (std::size_t{1} << 32), field,
              "shape must hold fewer than 2**32 elements");
    }
    const auto ndim = static_cast<int>(field.shape.size());
    require(ndim <= 30, field,
            "shape must have at most 30 dimensions, got " + std::to_string(ndim));
    require(field.stack >= 1, field,
            "stack must be at least 1, got " + std::to_string(field.stack));
    if (field.stack > 1) {
      require(field.role == Role::obs || field.role == Role::next_obs, field,
              "only observations can be stacked");
      require(field.stack_axis >= 0 && field.stack_axis < ndim, field,
              "axis must be an axis of shape, got " + std::to_string(field.stack_axis));
      require(field.shape[static_cast<std::size_t>(field.stack_axis)] == field.stack, field,
              "shape must have stack frames along axis, expected " + std::to_string(field.stack) +
                  ", got " +
                  std::to_string(field.shape[static_cast<std::size_t>(field.stack_axis)]));
    }
    if (field.role == Role::next_obs) {
      const auto twin = static_cast<std::size_t>(field.twin);
      require(field.twin >= 0 && twin < fields.size(), field,
              "has no observation of the same name");
      const Field& obs = fields[twin];
      require(obs.role == Role::obs && obs.dtype == field.dtype && obs.shape == field.shape &&
                  obs.stack == field.stack && obs.stack_axis == field.stack_axis,
              field, "must have the dtype, shape and stack of '" + obs.name + "'");
    }
  }
  for (const Role role : {Role::reward, Role::terminated, Role::truncated}) {
    const auto count = std::count_if(fields.begin(), fields.end(),
                                     [&](const Field& field) { return field.role == role; });
    if (count > 1)
      throw std::invalid_argument(std::string("fields must hold one ") + name_of(role));
  }
}

int Schema::find(Role role) const {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].role == role) return static_cast<int>(i);
  }
  return -1;
}

int Schema::max_stack() const {
  int stack = 1;
  for (const Field& field : fields) stack = std::max(stack, field.stack);
  return stack;
}

}  // namespace sharpwave
