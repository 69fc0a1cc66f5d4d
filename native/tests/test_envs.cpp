#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"
#include "envs/vector_env.hpp"

namespace {

using sharpwave::Autoreset;
using sharpwave::EnvKernels;
using sharpwave::EnvSpec;
using sharpwave::Kernels;
using sharpwave::VectorEnv;

// Some environments with the memory of their steps.
struct Stepped {
  VectorEnv env;
  std::vector<float> obs, final_obs, forces;
  std::vector<double> rewards, returns;
  std::vector<std::int64_t> choices, lengths;
  std::vector<std::uint8_t> terminated, truncated;

  Stepped(const EnvKernels& kernels, std::size_t n, std::size_t threads = 1,
          Autoreset autoreset = Autoreset::same_step)
      : env(kernels, n, {kernels.spec.time_limit, kernels.spec.option_default, autoreset, threads}),
        obs(n * kernels.spec.obs_row()),
        final_obs(obs),
        forces(n * kernels.spec.action_row()),
        rewards(n * kernels.spec.n_agents),
        returns(rewards),
        choices(forces.size()),
        lengths(n),
        terminated(n),
        truncated(n) {}

  void reset(std::uint64_t seed) {
    for (std::size_t i = 0; i < env.size(); ++i) env.seed(i, seed + i);
    env.reset(nullptr, env.default_bounds(), obs.data());
  }

  // Actions that depend on the step and on the environment's number, counted from `first`.
  void step(std::size_t t, std::size_t first = 0) {
    first *= env.spec().action_row();
    for (std::size_t i = 0; i < forces.size(); ++i) {
      std::minstd_rand random(static_cast<unsigned>(1 + t * 7919 + (first + i) * 104729));
      random.discard(3);
      choices[i] =
          env.spec().n_actions > 0 ? static_cast<std::int64_t>(random() % env.spec().n_actions) : 0;
      forces[i] = static_cast<float>(random() % 4001) / 1000.0f - 2.0f;
    }
    const void* actions = env.spec().n_actions > 0 ? static_cast<const void*>(choices.data())
                                                   : static_cast<const void*>(forces.data());
    env.step(actions, {obs.data(), rewards.data(), terminated.data(), truncated.data(),
                       final_obs.data(), returns.data(), lengths.data()});
  }
};

double distance(double a, double b) { return std::fabs(a - b); }

void sines_are_those_of_the_library(const Kernels& kernels) {
  std::mt19937_64 random(1);
  std::vector<double> x = {0.0, -0.0, 1e-300, 1e-20, -1e-9, 0.5, 1e6, -1e6, 1.7e6, -3e9, 1e300};
  for (const double range : {0.21, 3.2, 10.0, 100.0, 1e4, 1e6}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 20000; ++i) x.push_back(uniform(random));
  }
  for (int i = -4000; i < 4000; ++i) {  // around the quarters
    for (const double by : {0.0, 1e-16, -1e-12, 1e-6}) x.push_back(i * M_PI_4 + by);
  }
  std::vector<double> sine(x.size()), cosine(x.size());
  kernels.env.sin_cos(x.data(), x.size(), sine.data(), cosine.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(distance(sine[i], std::sin(x[i])) <= 3e-16);
    CHECK(distance(cosine[i], std::cos(x[i])) <= 3e-16);
    if (std::fabs(x[i]) < 0.5) {  // where most angles are, also relatively
      CHECK(distance(sine[i], std::sin(x[i])) <= 3e-16 * std::fabs(x[i]));
    }
  }
  const double odd[] = {std::numeric_limits<double>::infinity(), std::nan(""), 0.25};
  double odd_sine[3], odd_cosine[3];
  kernels.env.sin_cos(odd, 3, odd_sine, odd_cosine);
  CHECK(std::isnan(odd_sine[0]) && std::isnan(odd_cosine[1]));
  CHECK(distance(odd_sine[2], std::sin(0.25)) < 1e-16);
}

// Far angles in one lane do not change what its neighbors give.
void lanes_do_not_depend_on_each_other(const Kernels& kernels) {
  const double alone[8] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
  double mixed[8], sine[2][8], cosine[2][8];
  for (int far = 0; far < 8; ++far) {
    std::memcpy(mixed, alone, sizeof(mixed));
    mixed[far] = 1e9;
    kernels.env.sin_cos(alone, 8, sine[0], cosine[0]);
    kernels.env.sin_cos(mixed, 8, sine[1], cosine[1]);
    for (int i = 0; i < 8; ++i) {
      if (i != far) CHECK(sine[0][i] == sine[1][i] && cosine[0][i] == cosine[1][i]);
    }
  }
}

void instruction_sets_agree(const EnvKernels& base, const EnvKernels& wide) {
  Stepped one(base, 37), other(wide, 37);
  one.reset(5);
  other.reset(5);
  CHECK(one.obs == other.obs);
  for (std::size_t t = 0; t < 30; ++t) {  // a few steps: rounding may differ, and then grows
    one.step(t);
    other.step(t);
    CHECK(one.terminated == other.terminated && one.truncated == other.truncated);
    for (std::size_t i = 0; i < one.obs.size(); ++i) {
      CHECK(std::fabs(one.obs[i] - other.obs[i]) <= 1e-5f);
    }
  }
}

void an_environment_does_not_know_its_neighbors(const EnvKernels& kernels) {
  const std::size_t n = 21;
  Stepped all(kernels, n);
  all.reset(9);
  std::vector<Stepped> alone;
  for (std::size_t i = 0; i < n; ++i) {
    alone.emplace_back(kernels, 1);
    alone.back().reset(9 + i);
  }
  const std::size_t size = kernels.spec.obs_row(), n_agents = kernels.spec.n_agents;
  for (std::size_t t = 0; t < 260; ++t) {
    all.step(t);
    for (std::size_t i = 0; i < n; ++i) {
      alone[i].step(t, i);
      CHECK(std::memcmp(alone[i].obs.data(), all.obs.data() + i * size, size * sizeof(float)) == 0);
      for (std::size_t j = 0; j < n_agents; ++j) {
        CHECK(alone[i].rewards[j] == all.rewards[i * n_agents + j]);
      }
      CHECK(alone[i].truncated[0] == all.truncated[i]);
    }
  }
}

void threads_change_nothing(const EnvKernels& kernels) {
  const std::size_t n = 30011;
  Stepped one(kernels, n, 1), several(kernels, n, 4);
  one.reset(3);
  several.reset(3);
  CHECK(one.obs == several.obs);
  for (std::size_t t = 0; t < 30; ++t) {
    one.step(t);
    several.step(t);
    CHECK(one.obs == several.obs);
    CHECK(one.rewards == several.rewards);
    CHECK(one.terminated == several.terminated);
  }
}

void episodes_are_counted(const EnvKernels& kernels, Autoreset autoreset) {
  const std::size_t n = 13;
  Stepped stepped(kernels, n, 1, autoreset);
  stepped.reset(1);
  const std::size_t n_agents = kernels.spec.n_agents;
  std::vector<double> returns(n * n_agents);
  std::vector<std::int64_t> lengths(n);
  std::vector<std::uint8_t> was_end(n);
  std::size_t episodes = 0;
  for (std::size_t t = 0; t < 1100; ++t) {
    stepped.step(t);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t row = i * n_agents;
      if (autoreset == Autoreset::next_step && was_end[i] != 0) {  // only a reset
        for (std::size_t j = row; j < row + n_agents; ++j) CHECK(stepped.rewards[j] == 0);
        CHECK(stepped.terminated[i] == 0 && stepped.truncated[i] == 0);
        was_end[i] = 0;
        continue;
      }
      for (std::size_t j = row; j < row + n_agents; ++j) returns[j] += stepped.rewards[j];
      ++lengths[i];
      CHECK(lengths[i] <= kernels.spec.time_limit);
      CHECK(stepped.truncated[i] == (lengths[i] == kernels.spec.time_limit));
      was_end[i] = stepped.terminated[i] | stepped.truncated[i];
      if (was_end[i] == 0) continue;
      CHECK(stepped.lengths[i] == lengths[i]);
      for (std::size_t j = row; j < row + n_agents; ++j) {
        CHECK(stepped.returns[j] == returns[j]);
        returns[j] = 0;
      }
      lengths[i] = 0;
      ++episodes;
    }
    if (autoreset == Autoreset::disabled) {
      std::size_t ended = 0;
      for (const std::uint8_t flag : was_end) ended += flag;
      CHECK(stepped.env.waiting() == ended);
      if (ended > 0) {
        stepped.env.reset(was_end.data(), stepped.env.default_bounds(), stepped.obs.data());
      }
      CHECK(stepped.env.waiting() == 0);
    }
  }
  CHECK(episodes >= n);
}

struct Saved {
  std::vector<double> variables, returns;
  std::vector<std::int64_t> steps;
  std::vector<std::uint64_t> seeds, resets;
  std::vector<std::uint8_t> ended;

  explicit Saved(const VectorEnv& env)
      : variables(env.size() * env.spec().variables),
        returns(env.size() * env.spec().n_agents),
        steps(env.size()),
        seeds(env.size()),
        resets(env.size()),
        ended(env.size()) {
    env.save({variables.data(), steps.data(), returns.data(), seeds.data(), resets.data(),
              ended.data()});
  }
  void restore(VectorEnv* env) const {
    env->restore({variables.data(), steps.data(), returns.data(), seeds.data(), resets.data(),
                  ended.data()});
  }
};

void a_restored_environment_goes_on(const EnvKernels& kernels) {
  for (const Autoreset mode : {Autoreset::same_step, Autoreset::next_step}) {
    Stepped stepped(kernels, 11, 1, mode);
    stepped.reset(2);
    for (std::size_t t = 0; t < 190; ++t) stepped.step(t);
    const Saved saved(stepped.env);
    Stepped other(kernels, 11, 1, mode);
    saved.restore(&other.env);
    CHECK(other.env.is_ready());
    for (std::size_t t = 190; t < 420; ++t) {
      stepped.step(t);
      other.step(t);
      CHECK(stepped.obs == other.obs && stepped.rewards == other.rewards);
      CHECK(stepped.truncated == other.truncated);
    }
    Saved bad(stepped.env);
    bad.variables[3] = std::nan("");
    CHECK_THROWS(std::invalid_argument, bad.restore(&other.env));
    bad = Saved(stepped.env);
    bad.steps[0] = -1;
    CHECK_THROWS(std::invalid_argument, bad.restore(&other.env));
    CHECK(Saved(other.env).variables == Saved(stepped.env).variables);
  }
}

void bad_actions_are_found(const EnvKernels& kernels) {
  Stepped stepped(kernels, 19);
  const std::size_t all = stepped.choices.size();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (kernels.spec.n_actions > 0) {
    CHECK(stepped.env.find_bad_action(stepped.choices.data()) == all);
    for (const std::int64_t bad : {kernels.spec.n_actions, std::int64_t{-1}, most, -most - 1}) {
      stepped.choices[all - 2] = bad;
      CHECK(stepped.env.find_bad_action(stepped.choices.data()) == all - 2);
    }
  } else {
    CHECK(stepped.env.find_bad_action(stepped.forces.data()) == all);
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      stepped.forces[all - 1] = bad;
      CHECK(stepped.env.find_bad_action(stepped.forces.data()) == all - 1);
    }
  }
}

// Starts anywhere end in numbers, and in finite time.
void far_starts_do_not_hang(const EnvKernels& kernels) {
  for (const double far : {1e3, 1e7, 1e18, 1e300}) {
    Stepped stepped(kernels, 9);
    for (std::size_t i = 0; i < 9; ++i) stepped.env.seed(i, i);
    const std::vector<double> low(kernels.spec.variables, -far), high(low.size(), far);
    stepped.env.reset(nullptr, {low.data(), high.data()}, stepped.obs.data());
    for (std::size_t t = 0; t < 5; ++t) stepped.step(t);
  }
}

// Two agents that push towards each other from a distance of 0.4: what mpe2 1.1.1 gives after each
// step, of the first the place and the speed along the axis, and the reward.
void agents_of_spread_repel_each_other(const EnvKernels& spread) {
  Stepped stepped(spread, 3);
  stepped.reset(0);
  Saved saved(stepped.env);
  const std::size_t n = stepped.env.size();
  const auto put = [&](std::size_t variable, double value) {
    for (std::size_t i = 0; i < n; ++i) saved.variables[variable * n + i] = value;
  };
  for (std::size_t j = 0; j < spread.spec.variables; ++j) put(j, 0.0);
  put(0, -0.2);
  put(2, 0.2);
  saved.restore(&stepped.env);
  const std::vector<std::int64_t> actions = {2, 1, 2, 1, 2, 1};
  struct Expected {
    double place, speed, reward;
  };
  constexpr Expected kExpected[] = {
      {-0.2, 0.5, -0.2},
      {-0.15000000000000002, 0.875, -0.15000000000000002},
      {-0.06250000000000001, 1.1493185281944007, -0.5625},
      {0.05243185281944006, -0.38801110385419946, -0.5524318528194401},
      {0.013630742434020113, 2.160354615720549, -0.5136307424340201},
      {0.22966620400607501, 4.84765111311001, -0.22966620400607501},
      {0.714431315317076, 4.135738334832507, -0.714431315317076},
      {1.1280051488003269, 3.601803751124381, -1.1280051488003269}};
  for (const Expected& expected : kExpected) {
    stepped.env.step(actions.data(), {stepped.obs.data(), stepped.rewards.data(),
                                      stepped.terminated.data(), stepped.truncated.data()});
    for (std::size_t i = 0; i < n; ++i) {
      const float* obs = stepped.obs.data() + i * spread.spec.obs_row();
      CHECK(obs[0] == static_cast<float>(expected.speed) && obs[1] == 0.0f);
      CHECK(obs[2] == static_cast<float>(expected.place));
      CHECK(obs[12] == -obs[0] && obs[14] == -obs[2]);
      CHECK(distance(stepped.rewards[2 * i], expected.reward) < 1e-15);
      CHECK(stepped.rewards[2 * i] == stepped.rewards[2 * i + 1]);
    }
  }
}

void unknown_ids_and_sizes_are_refused() {
  CHECK_THROWS(std::invalid_argument, VectorEnv::find("HalfCheetah-v4"));
  CHECK_THROWS(std::invalid_argument, VectorEnv::find("CartPole"));
  CHECK_THROWS(std::invalid_argument, VectorEnv::find("simple_spread_v3"));
  CHECK_THROWS(std::invalid_argument, VectorEnv::find_multi("simple_spread_v3", 9));
  CHECK_THROWS(std::invalid_argument, VectorEnv::find_multi("simple_spread_v3", 0));
  CHECK_THROWS(std::invalid_argument, VectorEnv::find_multi("CartPole-v1", 1));
  const EnvKernels& env = VectorEnv::find("CartPole-v1");
  CHECK_THROWS(std::invalid_argument, VectorEnv(env, 0, {500, 0.0, Autoreset::same_step, 1}));
  CHECK_THROWS(std::invalid_argument, VectorEnv(env, 1, {0, 0.0, Autoreset::same_step, 1}));
  CHECK_THROWS(std::bad_alloc, VectorEnv(env, std::size_t{1} << 50, {1, 0.0}));
}

void check_environment(const EnvKernels& env, const EnvKernels& base) {
  instruction_sets_agree(base, env);
  an_environment_does_not_know_its_neighbors(env);
  for (const Autoreset mode : {Autoreset::same_step, Autoreset::next_step, Autoreset::disabled}) {
    episodes_are_counted(env, mode);
  }
  a_restored_environment_goes_on(env);
  bad_actions_are_found(env);
  far_starts_do_not_hang(env);
}

}  // namespace

int main() {
  const Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (int k = 0; k < count; ++k) {
    sines_are_those_of_the_library(*tables[k]);
    lanes_do_not_depend_on_each_other(*tables[k]);
    for (std::size_t e = 0; e < sharpwave::kEnvCount; ++e) {
      check_environment(tables[k]->env.envs[e], tables[0]->env.envs[e]);
    }
    for (std::size_t e = 0; e < sharpwave::kMultiEnvCount; ++e) {
      check_environment(tables[k]->env.multi_envs[e], tables[0]->env.multi_envs[e]);
    }
    agents_of_spread_repel_each_other(tables[k]->env.multi_envs[1]);
  }
  for (std::size_t e = 0; e < sharpwave::kEnvCount; ++e) {
    threads_change_nothing(sharpwave::kernels().env.envs[e]);
  }
  threads_change_nothing(sharpwave::VectorEnv::find_multi("simple_spread_v3", 3));
  unknown_ids_and_sizes_are_refused();
}
