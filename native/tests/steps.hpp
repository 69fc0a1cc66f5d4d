// Steps whose fields all derive from one number, and what pushes them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/replay.hpp"

// Row fields of step_schema, in its order.
enum StepField { kObs, kReward, kTerminated, kTruncated, kNextObs, kStepFields };

struct Step {
  float obs[2];
  float next_obs[2];
  float reward;
  bool terminated;
  bool truncated;
};

inline Step make_step(float obs, float next_obs, float reward, bool terminated = false,
                      bool truncated = false) {
  return {{obs, -obs}, {next_obs, -next_obs}, reward, terminated, truncated};
}

inline sharpwave::Schema step_schema() {
  using sharpwave::DType;
  using sharpwave::Role;
  sharpwave::Schema schema;
  schema.fields.resize(kStepFields);
  schema.fields[kObs] = {"obs", DType::float32, {2}, Role::obs, 1, 0, false, -1};
  schema.fields[kReward] = {"reward", DType::float32, {}, Role::reward, 1, 0, false, -1};
  schema.fields[kTerminated] = {
      "terminated", DType::boolean, {}, Role::terminated, 1, 0, false, -1};
  schema.fields[kTruncated] = {"truncated", DType::boolean, {}, Role::truncated, 1, 0, false, -1};
  schema.fields[kNextObs] = {"next_obs", DType::float32, {2}, Role::next_obs, 1, 0, false, kObs};
  return schema;
}

// The fields of consecutive steps as a push takes them.
struct StepSources {
  explicit StepSources(const Step* steps) {
    const auto source = [&](const void* field) {
      return sharpwave::Source{static_cast<const std::byte*>(field), sizeof(Step)};
    };
    sources[kObs] = source(steps->obs);
    sources[kReward] = source(&steps->reward);
    sources[kTerminated] = source(&steps->terminated);
    sources[kTruncated] = source(&steps->truncated);
    sources[kNextObs] = source(steps->next_obs);
  }
  sharpwave::Source sources[kStepFields];
};

// The arrays of a batch of steps.
struct StepBatch {
  explicit StepBatch(std::size_t rows, std::size_t batch = 0)
      : obs(2 * rows),
        next_obs(2 * rows),
        rewards(rows),
        terminated(rows),
        truncated(rows),
        ids(batch == 0 ? rows : batch),
        weights(ids.size()),
        discounts(rows),
        mask(rows),
        is_first(rows) {
    out.fields.resize(kStepFields);
    out.fields[kObs] = bytes(obs);
    out.fields[kReward] = bytes(rewards);
    out.fields[kTerminated] = bytes(terminated);
    out.fields[kTruncated] = bytes(truncated);
    out.fields[kNextObs] = bytes(next_obs);
    out.indices = ids.data();
    out.discounts = discounts.data();
  }
  template <typename T>
  static std::byte* bytes(std::vector<T>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }

  std::vector<float> obs;
  std::vector<float> next_obs;
  std::vector<float> rewards;
  std::vector<std::uint8_t> terminated;
  std::vector<std::uint8_t> truncated;
  std::vector<std::uint64_t> ids;
  std::vector<float> weights;
  std::vector<float> discounts;
  std::vector<std::uint8_t> mask;
  std::vector<std::uint8_t> is_first;
  sharpwave::BatchOut out;
};
