#include "envs/vector_env.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <vector>

#include "core/isa/kernels.hpp"
#include "core/rng.hpp"
#include "core/thread_pool.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kRangeStep = 64;  // ranges of threads begin at multiples of it
constexpr double kWorthAThread = 50e3;  // ns of work
constexpr std::size_t kCacheShift = 3 * 64 / sizeof(double);
constexpr std::int64_t kMostSteps = std::int64_t{1} << 53;
constexpr std::size_t kMostEnvs = std::size_t{1} << 40;

// Calls body(i) where a or b is not 0.
template <typename Body>
void for_each_set(const std::uint8_t* a, const std::uint8_t* b, std::size_t begin, std::size_t end,
                  const Body& body) {
  for (std::size_t i = begin; i < end;) {
    if (i + 8 <= end) {
      std::uint64_t first, second;
      std::memcpy(&first, a + i, 8);
      std::memcpy(&second, b + i, 8);
      if ((first | second) == 0) {
        i += 8;
        continue;
      }
    }
    const std::size_t stop = std::min(i + 8, end);
    for (; i < stop; ++i) {
      if ((a[i] | b[i]) != 0) body(i);
    }
  }
}

// Some environments whose rows are to be written together.
struct Rows {
  std::size_t indices[kRangeStep];
  std::size_t n = 0;
};

}  // namespace

const EnvKernels& VectorEnv::find(const std::string& id) {
  std::string known;
  for (const EnvKernels& env : kernels().env.envs) {
    if (id == env.spec.id) return env;
    known += (known.empty() ? "" : ", ") + std::string(env.spec.id);
  }
  throw std::invalid_argument("env_id must be one of " + known + ", got '" + id + "'");
}

const EnvKernels& VectorEnv::find_multi(const std::string& id, std::size_t n_agents) {
  for (const EnvKernels& env : kernels().env.multi_envs) {
    if (id == env.spec.id && n_agents == env.spec.n_agents) return env;
  }
  throw std::invalid_argument("there is no '" + id + "' of " + std::to_string(n_agents) +
                              " agents");
}

VectorEnv::VectorEnv(const EnvKernels& kernels, std::size_t n, const VectorEnvOptions& options)
    : kernels_(&kernels), n_(n), options_(options) {
  if (n == 0) throw std::invalid_argument("num_envs must be at least 1, got 0");
  if (n > kMostEnvs) throw std::bad_alloc();
  if (options.time_limit < 1) {
    throw std::invalid_argument("max_episode_steps must be at least 1, got " +
                                std::to_string(options.time_limit));
  }
  // Arrays that begin at the same place of a page would compete for the same lines of the cache.
  const std::size_t padded = (n + kEnvLanes - 1) / kEnvLanes * kEnvLanes + kCacheShift;
  const std::size_t sums = kernels.spec.variables + kernels.spec.n_agents;
  memory_ = Memory(((sums + 3) * sizeof(double) + 1) * padded);
  auto* numbers = reinterpret_cast<double*>(memory_.data());
  states_.variables = numbers;
  states_.returns = numbers + kernels.spec.variables * padded;
  states_.steps = reinterpret_cast<std::int64_t*>(numbers + sums * padded);
  states_.stride = padded;
  seeds_ = reinterpret_cast<std::uint64_t*>(numbers + (sums + 1) * padded);
  resets_ = reinterpret_cast<std::uint64_t*>(numbers + (sums + 2) * padded);
  ended_ = reinterpret_cast<std::uint8_t*>(numbers + (sums + 3) * padded);
}

StartBounds VectorEnv::default_bounds() const { return {spec().start_low, spec().start_high}; }

void VectorEnv::seed(std::size_t i, std::uint64_t seed) {
  seeds_[i] = seed;
  resets_[i] = 0;
}

void VectorEnv::start(std::size_t i, const StartBounds& bounds) {
  constexpr std::size_t kAtOnce = 4;
  const Philox random(seeds_[i], resets_[i]++);
  const std::size_t variables = spec().variables;
  for (std::size_t first = 0; first < variables; first += kAtOnce) {
    std::uint64_t bits[kAtOnce];
    const std::size_t last = std::min(first + kAtOnce, variables);
    random.fill(bits, last - first, 0, first);
    for (std::size_t j = first; j < last; ++j) {
      const double unit = static_cast<double>(bits[j - first] >> 11) * 0x1p-53;
      const double value = bounds.low[j] + (bounds.high[j] - bounds.low[j]) * unit;
      states_.variables[j * states_.stride + i] =
          spec().start_in_float32 ? static_cast<double>(static_cast<float>(value)) : value;
    }
  }
  states_.steps[i] = 0;
  for (std::size_t j = 0; j < spec().n_agents; ++j) states_.returns[j * states_.stride + i] = 0;
}

// Calls body(begin, end) for ranges that cover all environments, on several threads where that is
// worth it.
template <typename Body>
void VectorEnv::for_ranges(const Body& body) {
  const auto worth = static_cast<std::size_t>(step_ns() / kWorthAThread);
  if (worth <= 1 || options_.threads == 1) {
    body(0, n_);
    return;
  }
  const std::size_t most = options_.threads == 0 ? ThreadPool::cores() : options_.threads;
  const std::size_t threads = std::min(worth, most);
  // Some more ranges than threads: a core may be busy with something else.
  const std::size_t per_range = n_ / (4 * threads) / kRangeStep * kRangeStep + kRangeStep;
  const std::size_t ranges = (n_ + per_range - 1) / per_range;
  ThreadPool::shared().run(ranges, threads, [&](std::size_t range) {
    body(range * per_range, std::min((range + 1) * per_range, n_));
  });
}

void VectorEnv::reset(const std::uint8_t* mask, const StartBounds& bounds, float* obs) {
  for_ranges([&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (mask != nullptr && mask[i] == 0) continue;
      start(i, bounds);
      ended_[i] = 0;
    }
    kernels_->observe(states_, begin, end, obs);
  });
  is_ready_ = true;
  waiting_ = waiting_ == 0 ? 0 : static_cast<std::size_t>(std::count(ended_, ended_ + n_, 1));
}

void VectorEnv::step(const void* actions, const StepOut& out) {
  for_ranges([&](std::size_t begin, std::size_t end) { step_range(begin, end, actions, out); });
  if (options_.autoreset == Autoreset::disabled) {
    waiting_ = static_cast<std::size_t>(std::count(ended_, ended_ + n_, 1));
  }
}

void VectorEnv::step_range(std::size_t begin, std::size_t end, const void* actions,
                           const StepOut& out) {
  const EnvRules rules = {options_.time_limit, options_.option};
  const EnvStep step = {actions, out.obs, out.rewards, out.terminated, out.truncated};
  kernels_->step(states_, rules, begin, end, step);
  finish_range(begin, end, out);
}

void VectorEnv::observe(float* obs, std::uint8_t* is_first) const {
  kernels_->observe(states_, 0, n_, obs);
  for (std::size_t i = 0; i < n_; ++i) is_first[i] = states_.steps[i] == 0;
}

// Writes what is known of episodes that ended and starts the next ones.
void VectorEnv::finish_range(std::size_t begin, std::size_t end, const StepOut& out) {
  const StartBounds bounds = default_bounds();
  const std::size_t obs_row = spec().obs_row(), n_agents = spec().n_agents;
  Rows rows;
  const auto restart = [&](std::size_t i) {
    start(i, bounds);
    rows.indices[rows.n++] = i;
    if (rows.n == kRangeStep) {
      observe_rows(rows.indices, rows.n, out.obs);
      rows.n = 0;
    }
  };
  if (options_.autoreset == Autoreset::next_step) {
    for_each_set(ended_, ended_, begin, end, [&](std::size_t i) {
      restart(i);
      std::fill_n(out.rewards + i * n_agents, n_agents, 0.0);
      out.terminated[i] = out.truncated[i] = 0;
    });
  }
  if (options_.autoreset != Autoreset::same_step) std::memset(ended_ + begin, 0, end - begin);
  for_each_set(out.terminated, out.truncated, begin, end, [&](std::size_t i) {
    if (out.episode_returns != nullptr) {
      for (std::size_t j = 0; j < n_agents; ++j) {
        out.episode_returns[i * n_agents + j] = states_.returns[j * states_.stride + i];
      }
    }
    if (out.episode_lengths != nullptr) out.episode_lengths[i] = states_.steps[i];
    if (out.final_obs != nullptr) {
      std::memcpy(out.final_obs + i * obs_row, out.obs + i * obs_row, obs_row * sizeof(float));
    }
    if (options_.autoreset == Autoreset::same_step) {
      restart(i);
    } else {
      ended_[i] = 1;
    }
  });
  observe_rows(rows.indices, rows.n, out.obs);
}

void VectorEnv::observe_rows(const std::size_t* rows, std::size_t n, float* obs) const {
  if (n == 0) return;
  const std::size_t size = spec().obs_row();
  // Kept by each thread: some environments end an episode in almost every step.
  thread_local std::vector<double> gathered;
  thread_local std::vector<float> observed;
  if (gathered.size() < spec().variables * kRangeStep) {
    gathered.resize(spec().variables * kRangeStep);
  }
  if (observed.size() < size * kRangeStep) observed.resize(size * kRangeStep);
  for (std::size_t j = 0; j < spec().variables; ++j) {
    double* to = gathered.data() + j * kRangeStep;
    const double* from = states_.variables + j * states_.stride;
    for (std::size_t k = 0; k < n; ++k) to[k] = from[rows[k]];
  }
  EnvStates states = {};
  states.variables = gathered.data();
  states.stride = kRangeStep;
  kernels_->observe(states, 0, n, observed.data());
  for (std::size_t k = 0; k < n; ++k) {
    std::memcpy(obs + rows[k] * size, observed.data() + k * size, size * sizeof(float));
  }
}

std::size_t VectorEnv::find_bad_action(const std::int64_t* actions) const {
  const auto limit = static_cast<std::uint64_t>(spec().n_actions);
  const std::size_t n = n_ * spec().action_row();
  std::uint64_t bad = 0;
  for (std::size_t i = 0; i < n; ++i) bad |= static_cast<std::uint64_t>(actions[i]) >= limit;
  if (bad == 0) return n;
  const auto* found = std::find_if(actions, actions + n, [&](std::int64_t action) {
    return static_cast<std::uint64_t>(action) >= limit;
  });
  return static_cast<std::size_t>(found - actions);
}

std::size_t VectorEnv::find_bad_action(const float* actions) const {
  const auto* found = std::find_if(actions, actions + n_ * spec().action_row(),
                                   [](float action) { return !std::isfinite(action); });
  return static_cast<std::size_t>(found - actions);
}

void VectorEnv::save(const SavedVectorEnv& to) const {
  for (std::size_t j = 0; j < spec().variables; ++j) {
    std::copy_n(states_.variables + j * states_.stride, n_, to.variables + j * n_);
  }
  for (std::size_t j = 0; j < spec().n_agents; ++j) {
    std::copy_n(states_.returns + j * states_.stride, n_, to.returns + j * n_);
  }
  std::copy_n(states_.steps, n_, to.steps);
  std::copy_n(seeds_, n_, to.seeds);
  std::copy_n(resets_, n_, to.resets);
  std::copy_n(ended_, n_, to.ended);
}

void VectorEnv::restore(const GivenVectorEnv& from) {
  const std::size_t size = spec().variables * n_;
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::all_of(from.variables, from.variables + size, is_finite)) {
    throw std::invalid_argument("variables must be finite, got NaN or inf");
  }
  if (!std::all_of(from.returns, from.returns + spec().n_agents * n_, is_finite)) {
    throw std::invalid_argument("returns must be finite, got NaN or inf");
  }
  for (std::size_t i = 0; i < n_; ++i) {
    if (from.steps[i] < 0 || from.steps[i] > kMostSteps) {
      throw std::invalid_argument("steps must be within [0, 2**53], got " +
                                  std::to_string(from.steps[i]));
    }
    if (from.ended[i] > (options_.autoreset == Autoreset::same_step ? 0 : 1)) {
      throw std::invalid_argument("ended must be False where ends are reset in the same step");
    }
  }
  for (std::size_t j = 0; j < spec().variables; ++j) {
    std::copy_n(from.variables + j * n_, n_, states_.variables + j * states_.stride);
  }
  for (std::size_t j = 0; j < spec().n_agents; ++j) {
    std::copy_n(from.returns + j * n_, n_, states_.returns + j * states_.stride);
  }
  std::copy_n(from.steps, n_, states_.steps);
  std::copy_n(from.seeds, n_, seeds_);
  std::copy_n(from.resets, n_, resets_);
  std::copy_n(from.ended, n_, ended_);
  is_ready_ = true;
  waiting_ = 0;
  if (options_.autoreset == Autoreset::disabled) {
    waiting_ = static_cast<std::size_t>(std::count(ended_, ended_ + n_, 1));
  }
}

}  // namespace sharpwave
