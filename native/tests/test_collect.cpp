#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "check.hpp"
#include "core/collect/collector.hpp"
#include "core/collect/rollouts.hpp"

namespace {

using sharpwave::Acted;
using sharpwave::Activation;
using sharpwave::CollectedRollout;
using sharpwave::Collector;
using sharpwave::CriticView;
using sharpwave::Draws;
using sharpwave::EnvKernels;
using sharpwave::EnvSpec;
using sharpwave::NotFiniteError;
using sharpwave::Philox;
using sharpwave::Policy;
using sharpwave::PolicyActor;
using sharpwave::PolicyView;
using sharpwave::RolloutOptions;
using sharpwave::Rollouts;
using sharpwave::VectorEnv;
using namespace std::chrono_literals;

constexpr auto kLong = 60s;
constexpr std::uint64_t kSeed = 11;
constexpr std::size_t kEndless = 1 << 19;  // steps

Policy policy_for(const EnvSpec& spec, const PolicyView& view) {
  auto head = spec.n_actions > 0
                  ? sharpwave::make_choices({static_cast<std::size_t>(spec.n_actions)})
                  : sharpwave::make_normals(spec.action_size);
  return Policy(view.n_inputs(), view.n_critic_inputs(), {16, 8}, {8}, Activation::tanh,
                std::move(head));
}

// Environments, a policy for them and its weights.
struct World {
  VectorEnv env;
  Policy policy;
  std::vector<float> weights;
  std::mutex mutex;

  World(const char* id, std::size_t n, std::int64_t time_limit = 0)
      : World(VectorEnv::find(id), n, time_limit, {VectorEnv::find(id).spec.obs_size}) {}
  World(const EnvKernels& kernels, std::size_t n, std::int64_t time_limit, const PolicyView& view)
      : env(kernels, n,
            {time_limit > 0 ? time_limit : kernels.spec.time_limit, kernels.spec.option_default}),
        policy(policy_for(env.spec(), view)),
        weights(policy.n_parameters()) {
    const Philox random(5, 0);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(random.unit(i)) - 0.5f;
    }
    std::vector<float> obs(n * env.spec().obs_row());
    for (std::size_t i = 0; i < n; ++i) env.seed(i, 100 + i);
    env.reset(nullptr, env.default_bounds(), obs.data());
  }

  std::unique_ptr<Rollouts> rollouts(std::size_t n_steps, std::size_t threads = 1,
                                     bool is_valued = true) {
    const RolloutOptions options = {n_steps, 0.9f, 0.8f, kSeed, threads, is_valued};
    return std::make_unique<Rollouts>(&env, &policy, options);
  }
  std::unique_ptr<Collector> collector(std::size_t n_steps, std::size_t capacity) {
    return std::make_unique<Collector>(rollouts(n_steps), &mutex, weights, capacity);
  }
};

bool equal(const CollectedRollout& a, const CollectedRollout& b) {
  return a.obs == b.obs && a.choices == b.choices && a.moves == b.moves &&
         a.log_probs == b.log_probs && a.values == b.values && a.rewards == b.rewards &&
         a.next_values == b.next_values && a.advantages == b.advantages && a.returns == b.returns &&
         a.terminated == b.terminated && a.truncated == b.truncated && a.starts == b.starts &&
         a.episode_returns == b.episode_returns && a.episode_lengths == b.episode_lengths &&
         a.final_obs == b.final_obs && a.last_obs == b.last_obs;
}

void check_close(float a, double b) { CHECK(std::abs(a - b) <= 1e-5 * (1.0 + std::abs(b))); }

// The same by steps of all environments, one after the other.
void check_rollout(World* world, PolicyActor* actor, std::uint64_t count,
                   const CollectedRollout& rollout) {
  const EnvSpec& spec = world->env.spec();
  const std::size_t n = world->env.size(), n_steps = rollout.shape.n_steps;
  const bool is_discrete = spec.n_actions > 0;
  std::vector<float> obs(n * spec.obs_size), final_obs(obs), moves(n), log_probs(n), values(n);
  std::vector<float> final_values(n);
  std::vector<std::int64_t> choices(n), lengths(n);
  std::vector<double> rewards(n), totals(n), next_values(n * n_steps);
  std::vector<std::uint8_t> terminated(n), truncated(n), starts(n);
  world->env.observe(obs.data(), starts.data());
  std::size_t episodes = 0;
  for (std::size_t t = 0; t < n_steps; ++t) {
    const std::size_t row = t * n;
    CHECK(std::equal(obs.begin(), obs.end(), rollout.obs.begin() + row * spec.obs_size));
    CHECK(std::equal(starts.begin(), starts.end(), rollout.starts.begin() + row));
    actor->act(world->weights.data(), obs.data(), n, nullptr, Draws{Philox(kSeed, count), row},
               Acted{is_discrete ? choices.data() : nullptr, is_discrete ? nullptr : moves.data(),
                     log_probs.data(), values.data()});
    for (std::size_t i = 0; i < n; ++i) {
      if (is_discrete) CHECK(rollout.choices[row + i] == choices[i]);
      if (!is_discrete) check_close(rollout.moves[row + i], moves[i]);
      check_close(rollout.log_probs[row + i], log_probs[i]);
      check_close(rollout.values[row + i], values[i]);
      // What follows is what follows from the rollout's own move, to the last bit.
      if (!is_discrete) {
        moves[i] = std::clamp(rollout.moves[row + i], spec.action_low, spec.action_high);
      }
    }
    const void* actions = is_discrete ? static_cast<const void*>(choices.data()) : moves.data();
    world->env.step(actions, {obs.data(), rewards.data(), terminated.data(), truncated.data(),
                              final_obs.data(), totals.data(), lengths.data()});
    actor->values(world->weights.data(), final_obs.data(), n, final_values.data());
    actor->values(world->weights.data(), obs.data(), n, values.data());
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(rollout.rewards[row + i] == static_cast<float>(rewards[i]));
      CHECK(rollout.terminated[row + i] == terminated[i]);
      CHECK(rollout.truncated[row + i] == truncated[i]);
      starts[i] = terminated[i] | truncated[i];
      next_values[row + i] = starts[i] != 0 ? final_values[i] : values[i];
      if (terminated[i] == 0) {
        check_close(rollout.next_values[row + i], next_values[row + i]);
      }
      if (starts[i] == 0) continue;
      CHECK(rollout.episode_returns[episodes] == totals[i]);
      CHECK(std::equal(final_obs.begin() + i * spec.obs_size,
                       final_obs.begin() + (i + 1) * spec.obs_size,
                       rollout.final_obs.begin() + episodes * spec.obs_size));
      CHECK(rollout.episode_lengths[episodes++] == lengths[i]);
    }
  }
  CHECK(rollout.episode_returns.size() == episodes && rollout.episode_lengths.size() == episodes);
  CHECK(rollout.final_obs.size() == episodes * spec.obs_size && rollout.last_obs == obs);

  for (std::size_t i = 0; i < n; ++i) {
    double advantage = 0.0;
    for (std::size_t t = n_steps; t-- > 0;) {
      const std::size_t at = t * n + i;
      const double follows = rollout.terminated[at] != 0 ? 0.0 : next_values[at];
      const bool ended = (rollout.terminated[at] | rollout.truncated[at]) != 0;
      const double delta = rollout.rewards[at] + 0.9 * follows - rollout.values[at];
      advantage = delta + (ended ? 0.0 : 0.9 * 0.8 * advantage);
      check_close(rollout.advantages[at], advantage);
      check_close(rollout.returns[at], advantage + rollout.values[at]);
    }
  }
}

void test_rollouts_are_those_of_a_plain_loop() {
  for (const char* id :
       {"CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"}) {
    // Episodes are cut by 13 steps, and by others than the ends of rollouts.
    World ours(id, 13, 13), plain(id, 13, 13);
    const auto rollouts = ours.rollouts(20);
    PolicyActor actor(plain.policy);
    const std::atomic<bool> goes_on = false;
    for (std::uint64_t count = 0; count < 4; ++count) {
      check_rollout(&plain, &actor, count, *rollouts->collect({ours.weights.data()}, goes_on));
    }
  }
}

void test_threads_do_not_matter() {
  for (const char* id : {"CartPole-v1", "Pendulum-v1"}) {
    for (const std::size_t n : {1, 7, 16, 37, 300}) {
      World one(id, n);
      const auto expected = one.rollouts(30, 1);
      const std::atomic<bool> goes_on = false;
      const auto first = expected->collect({one.weights.data()}, goes_on);
      const auto second = expected->collect({one.weights.data()}, goes_on);
      for (const std::size_t threads : {2, 4, 64}) {
        World other(id, n);
        const auto rollouts = other.rollouts(30, threads);
        CHECK(equal(*first, *rollouts->collect({other.weights.data()}, goes_on)));
        CHECK(equal(*second, *rollouts->collect({other.weights.data()}, goes_on)));
      }
    }
  }
}

// Inputs of networks for the rows of obs [., obs_size], by the words of PolicyView.
struct Inputs {
  std::vector<float> actor, critic;

  Inputs(const PolicyView& view, const float* obs, std::size_t n_rows) {
    for (std::size_t row = 0; row < n_rows; ++row) {
      const std::size_t agent = row % view.n_agents;
      for (std::size_t j = 0; view.has_agent_id && j < view.n_agents; ++j) {
        actor.push_back(j == agent ? 1.0f : 0.0f);
      }
      const auto add = [&](std::vector<float>* to, std::size_t other) {
        const float* from = obs + (row - agent + other) * view.obs_size;
        to->insert(to->end(), from, from + view.obs_size);
      };
      add(&actor, agent);
      if (view.critic == CriticView::own_first) add(&critic, agent);
      for (std::size_t other = 0; other < view.n_agents; ++other) {
        if (view.critic == CriticView::joint || other != agent) add(&critic, other);
      }
    }
    if (view.critic == CriticView::own) critic = actor;
  }
};

void check_team(const EnvKernels& kernels, const RolloutOptions& options, std::size_t n) {
  const EnvSpec& spec = kernels.spec;
  const PolicyView view = sharpwave::view_of(spec, options);
  World world(kernels, n, 9, view);
  Rollouts rollouts(&world.env, &world.policy, options);
  const std::atomic<bool> goes_on = false;
  rollouts.collect({world.weights.data()}, goes_on);
  const auto found = rollouts.collect({world.weights.data(), {3.0f, 2.0f}}, goes_on);

  const std::size_t n_rows = n * spec.n_agents, size = options.n_steps * n_rows;
  CHECK(found->obs.size() == size * spec.obs_size && found->values.size() == size);
  const Inputs inputs(view, found->obs.data(), size);
  PolicyActor actor(world.policy);
  std::vector<float> values(size), log_probs(size), moves(size * spec.action_size);
  std::vector<std::int64_t> choices(size);
  const bool is_discrete = spec.n_actions > 0;
  actor.values(world.weights.data(), inputs.critic.data(), size, values.data());
  actor.act(world.weights.data(), inputs.actor.data(), size, nullptr, Draws{Philox(kSeed, 1), 0},
            Acted{is_discrete ? choices.data() : nullptr, is_discrete ? nullptr : moves.data(),
                  log_probs.data(), nullptr});
  for (std::size_t i = 0; i < size; ++i) {
    check_close(found->values[i], 2.0 * values[i] + 3.0);
    check_close(found->log_probs[i], log_probs[i]);
    if (is_discrete) CHECK(found->choices[i] == choices[i]);
    if (options.is_team_paid) {
      CHECK(found->rewards[i] == found->rewards[i - i % spec.n_agents]);
    }
  }
  for (std::size_t i = 0; i < moves.size() && !is_discrete; ++i) {
    check_close(found->moves[i], moves[i]);
  }
  // Episodes of 9 steps, cut at 9, 18, ... of all steps so far.
  const std::size_t before = options.n_steps / 9, after = 2 * options.n_steps / 9;
  CHECK(found->episode_lengths.size() == (after - before) * n);
  CHECK(found->episode_returns.size() == (after - before) * n_rows);
  CHECK(found->final_obs.size() == (after - before) * n_rows * spec.obs_size);

  for (const std::size_t threads : {2, 5}) {
    World other(kernels, n, 9, view);
    RolloutOptions same = options;
    same.threads = threads;
    Rollouts apart(&other.env, &other.policy, same);
    apart.collect({other.weights.data()}, goes_on);
    CHECK(equal(*found, *apart.collect({other.weights.data(), {3.0f, 2.0f}}, goes_on)));
  }
}

void test_teams_act_and_are_valued_by_what_they_see() {
  for (const char* id : {"simple_spread_v3", "simple_spread_v3-continuous"}) {
    for (const CriticView critic : {CriticView::own, CriticView::joint, CriticView::own_first}) {
      for (const bool has_agent_id : {false, true}) {
        const RolloutOptions options = {.n_steps = 14,
                                        .gamma = 0.9f,
                                        .gae_lambda = 0.8f,
                                        .seed = kSeed,
                                        .has_agent_id = has_agent_id,
                                        .critic = critic,
                                        .is_team_paid = has_agent_id};
        for (const std::size_t n_agents : {1, 2, 5}) {
          check_team(VectorEnv::find_multi(id, n_agents), options, n_agents == 2 ? 80 : 11);
        }
      }
    }
  }
  const EnvKernels& spread = VectorEnv::find_multi("simple_spread_v3", 2);
  World world(spread, 3, 9, {spread.spec.obs_size, 2});
  const RolloutOptions other = {
      .n_steps = 4, .gamma = 0.9f, .gae_lambda = 0.8f, .seed = kSeed, .critic = CriticView::joint};
  CHECK_THROWS(std::invalid_argument, Rollouts(&world.env, &world.policy, other));
}

void test_rollouts_without_values_are_the_same_otherwise() {
  for (const char* id : {"CartPole-v1", "Pendulum-v1"}) {
    World ours(id, 13, 13), plain(id, 13, 13);
    const auto bare = ours.rollouts(20, 2, false), valued = plain.rollouts(20);
    const std::atomic<bool> goes_on = false;
    for (int count = 0; count < 3; ++count) {
      auto expected = valued->collect({plain.weights.data()}, goes_on);
      for (std::vector<float>* values :
           {&expected->values, &expected->next_values, &expected->advantages, &expected->returns}) {
        CHECK(values->size() == 13 * 20);
        values->clear();
      }
      CHECK(equal(*bare->collect({ours.weights.data()}, goes_on), *expected));
    }
  }
}

void test_misfits_are_refused() {
  World world("CartPole-v1", 2);
  const EnvSpec& pendulum = VectorEnv::find("Pendulum-v1").spec;
  const Policy other = policy_for(pendulum, {pendulum.obs_size});
  const RolloutOptions options = {8, 0.9f, 0.8f, kSeed};
  CHECK_THROWS(std::invalid_argument, Rollouts(&world.env, &other, options));
  CHECK_THROWS(std::invalid_argument, Rollouts(&world.env, &world.policy, {0, 0.9f, 0.8f, kSeed}));
  VectorEnv fresh(VectorEnv::find("CartPole-v1"), 2, {500, 0.0});
  CHECK_THROWS(std::invalid_argument, Rollouts(&fresh, &world.policy, options));
}

void test_the_queue_keeps_the_order() {
  World ours("CartPole-v1", 5), plain("CartPole-v1", 5);
  const auto collector = ours.collector(16, 2);
  const auto expected = plain.rollouts(16);
  const std::atomic<bool> goes_on = false;
  for (int i = 0; i < 20; ++i) {
    const auto rollout = collector->receive(kLong);
    CHECK(rollout && equal(*rollout, *expected->collect({plain.weights.data()}, goes_on)));
    CHECK(rollout->version == 0 && collector->size() <= 2);
  }
}

void test_requests_have_the_weights_of_their_moment() {
  World ours("CartPole-v1", 5), plain("CartPole-v1", 5);
  const auto collector = ours.collector(16, 0);
  const auto expected = plain.rollouts(16);
  const std::atomic<bool> goes_on = false;
  CHECK(!collector->try_receive());
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::vector<float> changed = ours.weights;
    changed[0] = static_cast<float>(i);
    collector->request();
    CHECK(collector->set_weights(changed) == i + 1);
    const auto asked = collector->receive(kLong);
    CHECK(asked->version == i);
    CHECK(equal(*asked, *expected->collect({plain.weights.data()}, goes_on)));
    plain.weights = changed;
    // Nothing was asked for: the caller collects, with the weights of now.
    const auto own = collector->receive(kLong);
    CHECK(own->version == i + 1);
    CHECK(equal(*own, *expected->collect({plain.weights.data()}, goes_on)));
    CHECK(collector->count() == 2 * (i + 1));
  }
  World free("CartPole-v1", 5);
  CHECK_THROWS(std::runtime_error, free.collector(16, 1)->request());
}

void test_rollouts_go_on_by_their_number() {
  World ours("CartPole-v1", 5), plain("CartPole-v1", 5);
  const auto collector = ours.collector(16, 0);
  collector->set_count(7);
  const auto expected = plain.rollouts(16);
  expected->set_count(7);
  const std::atomic<bool> goes_on = false;
  CHECK(equal(*collector->receive(kLong), *expected->collect({plain.weights.data()}, goes_on)));
}

void wait_until_full(const Collector& collector, std::size_t capacity) {
  while (collector.size() < capacity) std::this_thread::sleep_for(1ms);
}

void test_stop_in_every_state_of_the_queue() {
  {
    World world("CartPole-v1", 4);
    const auto full = world.collector(8, 2);
    wait_until_full(*full, 2);
    full->stop();
    full->stop();
    CHECK(full->is_stopped() && full->receive(kLong) && full->try_receive());
    CHECK(!full->try_receive());
    CHECK_THROWS(std::runtime_error, full->receive(kLong));
  }
  {
    World world("CartPole-v1", 4);
    const auto endless = world.collector(kEndless, 1);  // in the midst of a rollout
    std::this_thread::sleep_for(5ms);
    CHECK(!endless->receive(1ms) && !endless->try_receive());
    endless->stop();
    CHECK_THROWS(std::runtime_error, endless->receive(kLong));
  }
  {
    World world("CartPole-v1", 4);
    const auto waited_for = world.collector(kEndless, 1);
    std::thread waits([&] { CHECK_THROWS(std::runtime_error, waited_for->receive(kLong)); });
    std::this_thread::sleep_for(5ms);
    waited_for->stop();
    waits.join();
  }
  {
    World world("CartPole-v1", 4);
    const auto idle = world.collector(8, 0);
    idle->request();
    CHECK(idle->receive(kLong));
    idle->request();
    idle->stop();
    CHECK_THROWS(std::runtime_error, idle->request());
  }
  {
    World world("CartPole-v1", 4);
    const auto busy = world.collector(kEndless, 0);  // the caller collects
    std::thread waits([&] { CHECK_THROWS(std::runtime_error, busy->receive(kLong)); });
    std::this_thread::sleep_for(5ms);
    busy->stop();
    waits.join();
  }
  for (int i = 0; i < 200; ++i) {
    World world("CartPole-v1", 2);
    const auto brief = world.collector(4, 1 + i % 2);
    if (i % 3 == 0) CHECK(brief->receive(kLong));
    if (i % 5 == 0) brief->stop();
  }
}

void test_errors_of_the_thread_reach_the_receiver() {
  for (const std::size_t capacity : {0, 2}) {
    World world("Pendulum-v1", 3);
    for (float& weight : world.weights) weight = std::numeric_limits<float>::max();
    const auto collector = world.collector(8, capacity);
    if (capacity == 0) collector->request();
    for (int i = 0; i < 2; ++i) CHECK_THROWS(NotFiniteError, collector->receive(kLong));
    CHECK_THROWS(NotFiniteError, collector->try_receive());
    collector->stop();
    CHECK_THROWS(NotFiniteError, collector->receive(kLong));
  }
}

void test_many_threads_call_at_once() {
  World world("CartPole-v1", 4);
  const auto collector = world.collector(16, 2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) CHECK(collector->receive(kLong));
    });
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        collector->set_weights(world.weights);
        CHECK(collector->weights()->parameters == world.weights);
        (void)collector->size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void test_a_forked_process_has_no_thread() {
  World world("CartPole-v1", 4);
  auto collector = world.collector(kEndless, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    CHECK_THROWS(std::runtime_error, collector->receive(kLong));
    collector->stop();
    collector.reset();
    ::_exit(0);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
  test_rollouts_are_those_of_a_plain_loop();
  test_threads_do_not_matter();
  test_rollouts_without_values_are_the_same_otherwise();
  test_teams_act_and_are_valued_by_what_they_see();
  test_misfits_are_refused();
  test_the_queue_keeps_the_order();
  test_requests_have_the_weights_of_their_moment();
  test_rollouts_go_on_by_their_number();
  test_stop_in_every_state_of_the_queue();
  test_errors_of_the_thread_reach_the_receiver();
  test_many_threads_call_at_once();
  test_a_forked_process_has_no_thread();
  return 0;
}
