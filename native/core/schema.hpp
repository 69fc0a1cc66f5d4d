// What a row holds: named fields with dtype, shape and role.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.hpp"

namespace sharpwave {

enum class Role : std::uint8_t { obs, next_obs, action, reward, terminated, truncated, extra };

Role role_from_name(const std::string& name);
const char* name_of(Role role);

struct Field {
  std::string name;  // nested observations have dotted names: obs.image
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  Role role = Role::extra;
  int stack = 1;  // the field is this many frames, the newest last, along stack_axis
  int stack_axis = 0;
  bool finite = false;  // refuse NaN and infinities
  int twin = -1;        // of a next_obs field: the index of the obs field it repeats one step later

  std::size_t items() const;
  std::size_t bytes() const { return items() * item_size(dtype); }
};

// How a stacked field decomposes into frames: [outer, stack, inner] bytes.
struct FrameShape {
  std::size_t outer;
  std::size_t stack;
  std::size_t inner;
  std::size_t frame_bytes() const { return outer * inner; }
};

FrameShape frame_shape(const Field& field);

struct Schema {
  std::vector<Field> fields;

  // Throws std::invalid_argument for shapes, stacks, roles or twins that make no sense.
  void validate() const;
  // The index of the only field of this role, or -1.
  int find(Role role) const;
  // The largest stack among the fields.
  int max_stack() const;
};

}  // namespace sharpwave
