// Rollouts: every step follows from the one before, and the numbers are those of the policy.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "collect/rollout_collector.hpp"

namespace {

using namespace sharpwave;

// A policy for some environments, and the memory of a rollout.
struct Case {
  std::size_t n, n_steps, obs_size;
  bool discrete;
  VectorEnv env;
  Policy policy;
  PolicyActor actor;
  std::vector<float> parameters, obs, moves, log_probs, values, rewards, next_values, now;
  std::vector<std::int64_t> choices, lengths;
  std::vector<std::uint8_t> terminated, truncated, starts, is_first;
  std::vector<double> returns;
  FinishedEpisodes finished;

  Case(const std::string& id, std::size_t n, std::size_t n_steps, std::size_t threads = 1)
      : n(n),
        n_steps(n_steps),
        obs_size(VectorEnv::find(id).spec.obs_size),
        discrete(VectorEnv::find(id).spec.n_actions > 0),
        env(VectorEnv::find(id), n,
            {23, VectorEnv::find(id).spec.option_default, Autoreset::same_step, threads}),
        policy(obs_size, {8, 8}, Activation::tanh, head(VectorEnv::find(id).spec)),
        actor(policy),
        parameters(policy.n_parameters()),
        obs(n_steps * n * obs_size),
        moves(n_steps * n),
        log_probs(moves),
        values(moves),
        rewards(moves),
        next_values(moves),
        now(n * obs_size),
        choices(n_steps * n),
        lengths(n),
        terminated(n_steps * n),
        truncated(terminated),
        starts(terminated),
        is_first(n, 1),
        returns(n) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.3f);
    for (float& parameter : parameters) parameter = normal(random);
    for (std::size_t i = 0; i < n; ++i) env.seed(i, i);
    env.reset(nullptr, env.default_bounds(), now.data());
  }

  static std::unique_ptr<Head> head(const EnvSpec& spec) {
    return spec.n_actions > 0 ? make_choices({static_cast<std::size_t>(spec.n_actions)})
                              : make_normals(1);
  }

  std::size_t collect(std::uint64_t first_call) {
    const RolloutColumns columns = {.obs = obs.data(),
                                    .choices = discrete ? choices.data() : nullptr,
                                    .moves = discrete ? nullptr : moves.data(),
                                    .log_probs = log_probs.data(),
                                    .values = values.data(),
                                    .rewards = rewards.data(),
                                    .terminated = terminated.data(),
                                    .truncated = truncated.data(),
                                    .starts = starts.data(),
                                    .next_values = next_values.data()};
    return RolloutCollector(&env, &actor, {-1.0f, 1.0f})
        .collect(parameters.data(), {7, first_call}, n_steps, columns,
                 {now.data(), is_first.data(), returns.data(), lengths.data()}, &finished);
  }
};

const char* const kIds[] = {"CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0",
                            "MountainCarContinuous-v0"};

void test_steps_follow_from_each_other() {
  for (const char* id : kIds) {
    Case test(id, 5, 60);
    CHECK(test.collect(0) == 60);
    std::size_t ended = 0;
    for (std::size_t row = 0; row < 60 * test.n; ++row) {
      const bool ends = (test.terminated[row] | test.truncated[row]) != 0;
      ended += ends;
      if (row + test.n < 60 * test.n) {
        CHECK((test.starts[row + test.n] != 0) == ends);
        if (!ends) CHECK(test.next_values[row] == test.values[row + test.n]);
      }
    }
    CHECK(ended >= 2 * test.n && ended == test.finished.returns.size());
    CHECK(*std::max_element(test.finished.lengths.begin(), test.finished.lengths.end()) == 23);
    // A truncated episode is worth what the policy says of its last observation, not of the next.
    for (std::size_t row = 0; row + test.n < 60 * test.n; ++row) {
      if (test.truncated[row] != 0 && test.terminated[row] == 0) {
        CHECK(test.next_values[row] != test.values[row + test.n]);
      }
    }
  }
}

void test_two_rollouts_are_one_long_one() {
  for (const char* id : kIds) {
    Case whole(id, 3, 40), half(id, 3, 20);
    whole.collect(0);
    for (std::size_t part = 0; part < 2; ++part) {
      half.collect(20 * part);
      const std::size_t first = part * 20 * half.n;
      CHECK(std::equal(half.obs.begin(), half.obs.end(),
                       whole.obs.begin() + static_cast<std::ptrdiff_t>(first * half.obs_size)));
      CHECK(std::equal(half.rewards.begin(), half.rewards.end(),
                       whole.rewards.begin() + static_cast<std::ptrdiff_t>(first)));
      CHECK(std::equal(half.next_values.begin(), half.next_values.end(),
                       whole.next_values.begin() + static_cast<std::ptrdiff_t>(first)));
    }
    CHECK(half.finished.returns == whole.finished.returns);
  }
}

void test_threads_change_nothing() {
  Case one("CartPole-v1", 4000, 10, 1), four("CartPole-v1", 4000, 10, 4);
  one.collect(0);
  std::thread([&] { four.collect(0); }).join();
  CHECK(one.obs == four.obs && one.choices == four.choices && one.values == four.values);
}

void test_what_is_not_finite_stops_before_the_step() {
  for (const char* id : kIds) {
    Case test(id, 3, 10);
    test.parameters.back() = std::numeric_limits<float>::quiet_NaN();
    CHECK(test.collect(0) == 0);
    CHECK(std::all_of(test.lengths.begin(), test.lengths.end(),
                      [](std::int64_t length) { return length == 0; }));
  }
}

}  // namespace

int main() {
  test_steps_follow_from_each_other();
  test_two_rollouts_are_one_long_one();
  test_threads_change_nothing();
  test_what_is_not_finite_stops_before_the_step();
}
