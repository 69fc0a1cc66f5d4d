#include <stdexcept>
#include <string>

#include "core/row_store.hpp"
#include "core/schema.hpp"
#include "tests/check.hpp"

namespace {

using namespace sharpwave;

Field field(const char* name, Role role, std::vector<std::int64_t> shape = {}) {
  Field made;
  made.name = name;
  made.role = role;
  made.shape = std::move(shape);
  return made;
}

Schema step() {
  Schema schema;
  schema.fields = {field("obs", Role::obs, {2, 3}), field("reward", Role::reward),
                   field("next_obs", Role::next_obs, {2, 3})};
  schema.fields[2].twin = 0;
  return schema;
}

// The message of the error that the schema raises.
std::string refusal(const Schema& schema) {
  try {
    schema.validate();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void accepts_a_step() { CHECK(refusal(step()).empty()); }

void refuses_what_makes_no_sense() {
  CHECK(mentions(refusal(Schema{}), "at least one field"));
  for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{-1}}) {
    Schema schema = step();
    schema.fields[1].shape = {dim};
    CHECK(mentions(refusal(schema), "'reward'"));
  }
  for (const auto& shape : {std::vector<std::int64_t>{std::int64_t{1} << 62, 4},
                            std::vector<std::int64_t>{1 << 16, 1 << 16, 1 << 16, 1 << 16}}) {
    Schema schema = step();
    schema.fields[1].shape = shape;
    CHECK(mentions(refusal(schema), "fewer than 2**32"));
  }
  Schema schema = step();
  schema.fields[1].shape.assign(31, 1);
  CHECK(mentions(refusal(schema), "at most 30 dimensions, got 31"));
  schema = step();
  schema.fields[0].stack = 0;
  CHECK(mentions(refusal(schema), "stack must be at least 1, got 0"));
  schema = step();
  schema.fields[1].stack = 2;
  CHECK(mentions(refusal(schema), "only observations"));
  schema = step();
  schema.fields[0].stack = 2;
  schema.fields[0].stack_axis = 5;
  CHECK(mentions(refusal(schema), "axis"));
  schema.fields[0].stack_axis = 1;
  CHECK(mentions(refusal(schema), "expected 2, got 3"));
}

void refuses_a_next_observation_unlike_its_observation() {
  for (const int twin : {-1, 1, 2, 7}) {
    Schema schema = step();
    schema.fields[2].twin = twin;
    CHECK(mentions(refusal(schema), "next_obs"));
  }
  Schema schema = step();
  schema.fields[2].shape = {3, 2};
  CHECK(mentions(refusal(schema), "of 'obs'"));
  schema = step();
  schema.fields[2].dtype = DType::uint8;
  CHECK(mentions(refusal(schema), "of 'obs'"));
}

void refuses_two_of_a_kind() {
  Schema schema = step();
  schema.fields.push_back(field("again", Role::reward));
  CHECK(mentions(refusal(schema), "one reward"));
}

void roles_have_names() {
  for (const char* name :
       {"obs", "next_obs", "action", "reward", "terminated", "truncated", "extra"}) {
    CHECK(std::string(name_of(role_from_name(name))) == name);
  }
  CHECK_THROWS(std::invalid_argument, role_from_name("goal"));
}

void frames_decompose_a_stack() {
  Field stacked = field("obs", Role::obs, {5, 4, 3});
  stacked.dtype = DType::uint16;
  stacked.stack = 4;
  stacked.stack_axis = 1;
  const FrameShape frames = frame_shape(stacked);
  CHECK(frames.outer == 5 && frames.stack == 4 && frames.inner == 6);
  CHECK(frames.frame_bytes() * 4 == stacked.bytes());
}

void records_are_aligned_and_without_holes() {
  Schema schema;
  schema.fields = {field("a", Role::extra, {3}), field("b", Role::extra), field("c", Role::extra)};
  schema.fields[0].dtype = DType::uint8;
  schema.fields[1].dtype = DType::float64;
  schema.fields[2].dtype = DType::int16;
  const RowStore store(schema, Layout::transition, 7);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(store.column(i).offset % item_size(schema.fields[i].dtype) == 0);
    CHECK(store.column(i).bytes == schema.fields[i].bytes());
  }
  CHECK(store.stride() == 16 && store.slots() == 7);
}

void stream_rows_store_an_observation_once() {
  const Schema schema = step();
  const RowStore transitions(schema, Layout::transition, 1);
  const RowStore streams(schema, Layout::stream, 1);
  CHECK(transitions.stride() == 52 && streams.stride() == 28);
  CHECK(!streams.is_stored(2) && transitions.is_stored(2));
  CHECK(streams.column(2).offset == streams.column(0).offset);
  CHECK_THROWS(std::bad_alloc, RowStore(schema, Layout::stream, ~std::size_t{0} / 2));
  CHECK_THROWS(std::bad_alloc, RowStore(schema, Layout::stream, std::size_t{1} << 50));
}

}  // namespace

int main() {
  accepts_a_step();
  refuses_what_makes_no_sense();
  refuses_a_next_observation_unlike_its_observation();
  refuses_two_of_a_kind();
  roles_have_names();
  frames_decompose_a_stack();
  records_are_aligned_and_without_holes();
  stream_rows_store_an_observation_once();
}
