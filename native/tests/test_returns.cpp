#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/returns.hpp"

namespace {

using sharpwave::Kernels;
using sharpwave::Rollout;

template <typename T>
struct Data {
  std::size_t n_steps, n_envs;
  std::vector<T> rewards, values, next_values, log_rhos, bootstrap, dones;
  std::vector<std::uint8_t> terminated, truncated;

  Data(std::size_t steps, std::size_t envs) : n_steps(steps), n_envs(envs) {
    std::mt19937 random(static_cast<unsigned>(steps * 31 + envs));
    std::normal_distribution<double> normal;
    std::bernoulli_distribution ends(0.1);
    const std::size_t size = steps * envs;
    for (auto* array : {&rewards, &values, &next_values, &log_rhos}) {
      for (std::size_t i = 0; i < size; ++i) array->push_back(static_cast<T>(normal(random)));
    }
    for (std::size_t i = 0; i < envs; ++i) bootstrap.push_back(static_cast<T>(normal(random)));
    for (std::size_t i = 0; i < size; ++i) {
      terminated.push_back(ends(random));
      truncated.push_back(ends(random));
      dones.push_back(terminated.back());
    }
  }

  // With true successors and truncation, or with a bootstrap after the last step.
  Rollout<T> rollout(bool with_next, bool numbers) const {
    return {.rewards = rewards.data(),
            .values = values.data(),
            .next_values = with_next ? next_values.data() : nullptr,
            .bootstrap = with_next ? nullptr : bootstrap.data(),
            .dones = numbers ? dones.data() : nullptr,
            .terminated = numbers ? nullptr : terminated.data(),
            .truncated = with_next && !numbers ? truncated.data() : nullptr,
            .n_steps = n_steps,
            .n_envs = n_envs,
            .gamma = T(0.99),
            .lam = T(0.95)};
  }
};

template <typename T>
bool close(const std::vector<T>& a, const std::vector<T>& b) {
  const double tolerance = sizeof(T) == 4 ? 1e-4 : 1e-11;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double scale = 1.0 + std::fabs(static_cast<double>(b[i]));
    if (!(std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])) <= tolerance * scale)) {
      return false;
    }
  }
  return a.size() == b.size();
}

template <typename T>
std::vector<T> gae_loop(const Rollout<T>& in) {
  std::vector<T> advantages(in.n_steps * in.n_envs);
  for (std::size_t env = 0; env < in.n_envs; ++env) {
    T following = 0;
    for (std::size_t t = in.n_steps; t-- > 0;) {
      const std::size_t i = t * in.n_envs + env;
      const T after = in.next_values != nullptr ? in.next_values[i]
                      : t + 1 == in.n_steps     ? in.bootstrap[env]
                                                : in.values[i + in.n_envs];
      const bool dead = in.dones != nullptr ? in.dones[i] != 0 : in.terminated[i] != 0;
      const bool ends = dead || (in.truncated != nullptr && in.truncated[i] != 0);
      const T delta = in.rewards[i] + (dead ? T(0) : in.gamma * after) - in.values[i];
      following = delta + (ends ? T(0) : in.gamma * in.lam * following);
      advantages[i] = following;
    }
  }
  return advantages;
}

template <typename T>
void check_tables(const Kernels& table, const Kernels& base) {
  for (const std::size_t n_steps : {0, 1, 2, 5, 8, 15, 16, 17, 33, 64, 100, 513}) {
    for (const std::size_t n_envs : {1, 2, 3, 8, 17, 530}) {
      const Data<T> data(n_steps, n_envs);
      const std::size_t size = n_steps * n_envs;
      std::vector<T> first(size), second(size), base_first(size), base_second(size);
      for (const bool with_next : {false, true}) {
        for (const bool numbers : {false, true}) {
          const Rollout<T> rollout = data.rollout(with_next, numbers);
          sharpwave::returns_kernels<T>(table).gae(rollout, first.data(), second.data());
          CHECK(close(first, gae_loop(rollout)));
          for (std::size_t i = 0; i < size; ++i) CHECK(second[i] == first[i] + data.values[i]);

          const sharpwave::VtraceWeights<T> weights{data.log_rhos.data(), T(1.1), T(0.9), T(1)};
          sharpwave::returns_kernels<T>(table).vtrace(rollout, weights, first.data(),
                                                      second.data());
          sharpwave::returns_kernels<T>(base).vtrace(rollout, weights, base_first.data(),
                                                     base_second.data());
          CHECK(close(first, base_first));
          CHECK(close(second, base_second));
          if (with_next) continue;
          sharpwave::returns_kernels<T>(table).discounted_returns(rollout, second.data(),
                                                                  first.data());
          sharpwave::returns_kernels<T>(base).discounted_returns(rollout, base_second.data(),
                                                                 base_first.data());
          CHECK(close(first, base_first));
        }
      }
      for (const std::size_t n : {1, 3, 40}) {
        const sharpwave::NStepInputs<T> inputs{data.rewards.data(),
                                               data.next_values.data(),
                                               data.terminated.data(),
                                               data.truncated.data(),
                                               n_steps,
                                               n_envs,
                                               n,
                                               T(0.9)};
        sharpwave::returns_kernels<T>(table).n_step_returns(inputs, first.data());
        sharpwave::returns_kernels<T>(base).n_step_returns(inputs, base_first.data());
        CHECK(close(first, base_first));
      }
    }
  }
}

template <typename T>
void check_env_major(const Kernels& table) {
  const std::size_t n_steps = 37, n_envs = 5;
  const Data<T> data(n_steps, n_envs);
  std::vector<T> advantages(n_steps * n_envs), returns(n_steps * n_envs);
  sharpwave::gae_env_major<T>(data.rollout(false, true), advantages.data(), returns.data(), table);
  for (std::size_t env = 0; env < n_envs; ++env) {
    Rollout<T> one = data.rollout(false, true);
    one.rewards += env * n_steps;
    one.values += env * n_steps;
    one.dones += env * n_steps;
    one.bootstrap += env;
    one.n_envs = 1;
    const std::vector<T> want = gae_loop(one);
    const auto start = advantages.begin() + static_cast<std::ptrdiff_t>(env * n_steps);
    CHECK(close(std::vector<T>(start, start + static_cast<std::ptrdiff_t>(n_steps)), want));
  }
}

}  // namespace

int main() {
  const Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (int i = 0; i < count; ++i) {
    check_tables<float>(*tables[i], *tables[0]);
    check_tables<double>(*tables[i], *tables[0]);
    check_env_major<float>(*tables[i]);
    check_env_major<double>(*tables[i]);
  }
  return 0;
}
