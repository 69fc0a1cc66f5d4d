// Learners of replay: networks in stacks, squashed actions, noise, and steps on several threads.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"
#include "core/learn/q_actor.hpp"
#include "core/learn/q_learning.hpp"
#include "core/learn/sac.hpp"
#include "core/learn/td3.hpp"

namespace {

using namespace sharpwave;

using Floats = std::vector<float>;

Floats random_floats(std::size_t n, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  Floats numbers(n);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

// The parameters of network i of a stack as a network alone has them: weights [out, in].
Floats unstacked(const std::vector<std::size_t>& sizes, std::size_t n, std::size_t i,
                 const Floats& stacked) {
  Floats alone;
  std::size_t at = 0;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const std::size_t in = sizes[layer], out = sizes[layer + 1];
    const float* weight = stacked.data() + at + i * in * out;
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t k = 0; k < in; ++k) alone.push_back(weight[k * out + o]);
    }
    at += n * in * out;
    alone.insert(alone.end(), stacked.begin() + at + i * out, stacked.begin() + at + (i + 1) * out);
    at += n * out;
  }
  return alone;
}

void test_networks_in_a_stack_are_those_alone() {
  const std::vector<std::size_t> sizes{5, 17, 9, 2};
  const std::size_t n = 3, n_rows = 20;
  const Floats x = random_floats(n_rows * 5, 1), w = random_floats(n_rows * 2, 2);
  const Mlp alone(sizes, Activation::relu);
  Floats stacked, gradient;
  for (std::size_t i = 0; i < n; ++i) {
    const Mlp member = Mlp::stacked(sizes, Activation::relu, n, i);
    if (i == 0) {
      stacked = random_floats(member.n_parameters(), 3, 0.4f);
      gradient.resize(member.n_parameters());
    }
    const Floats own = unstacked(sizes, n, i, stacked);
    CHECK(own.size() == alone.n_parameters());
    MlpMemory memory, own_memory;
    const Matrix& output = member.forward(stacked.data(), x.data(), n_rows, &memory);
    const Matrix& own_output = alone.forward(own.data(), x.data(), n_rows, &own_memory);
    for (std::size_t j = 0; j < output.size(); ++j) {
      CHECK(std::abs(output.data()[j] - own_output.data()[j]) < 1e-5);
    }
    Floats output_grad = w, own_grad = w, own_gradient(own.size()), inputs(n_rows * 2);
    Floats own_inputs(x.size());
    member.backward(stacked.data(), x.data(), n_rows, output_grad.data(),
                    {gradient.data(), false, inputs.data(), 3}, &memory);
    alone.backward(own.data(), x.data(), n_rows, own_grad.data(), own_gradient.data(),
                   own_inputs.data(), &own_memory);
    const Floats found = unstacked(sizes, n, i, gradient);
    for (std::size_t j = 0; j < found.size(); ++j) {
      CHECK(std::abs(found[j] - own_gradient[j]) < 1e-4);
    }
    for (std::size_t row = 0; row < n_rows; ++row) {
      for (std::size_t j = 0; j < 2; ++j) {
        CHECK(std::abs(inputs[row * 2 + j] - own_inputs[row * 5 + 3 + j]) < 1e-4);
      }
    }
  }
}

void test_rows_that_are_kept_have_the_gradient_that_they_had() {
  const Mlp mlp({4, 8, 8, 1}, Activation::relu);
  const Floats parameters = random_floats(mlp.n_parameters(), 1, 0.5f), x = random_floats(40, 2);
  MlpMemory memory;
  Floats all(40), some(12), ones(10, 1.0f);
  mlp.forward(parameters.data(), x.data(), 10, &memory);
  mlp.backward(parameters.data(), x.data(), 10, ones.data(), {nullptr, false, all.data()}, &memory);
  const std::size_t kept[] = {1, 2, 7};
  Floats few(3, 1.0f);
  mlp.forward(parameters.data(), x.data(), 10, &memory);
  mlp.keep_rows(kept, 3, &memory);
  mlp.backward(parameters.data(), nullptr, 3, few.data(), {nullptr, false, some.data()}, &memory);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      CHECK(std::abs(some[i * 4 + j] - all[kept[i] * 4 + j]) < 1e-5);
    }
  }
}

void test_squashed_actions_are_those_of_the_library() {
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int t = 0; t < count; ++t) {
    const std::size_t n = 512;
    const Floats mean = random_floats(n, 1, 6.0f), noise = random_floats(n, 2);
    const Floats raw = random_floats(n, 3, 8.0f);
    Floats log_std = raw, action(n), spread(n), density(n);
    tables[t]->replay.squash(
        {mean.data(), log_std.data(), noise.data(), action.data(), spread.data(), density.data()},
        -20.0f, 2.0f, n);
    for (std::size_t i = 0; i < n; ++i) {
      const double bounded = std::clamp(static_cast<double>(raw[i]), -20.0, 2.0);
      const double spreads = std::exp(bounded) * noise[i], u = mean[i] + spreads;
      CHECK(log_std[i] == static_cast<float>(bounded));
      CHECK(std::abs(spread[i] - spreads) <= 1e-6 * std::abs(spreads));
      CHECK(std::abs(action[i] - std::tanh(u)) < 1e-6);
      const double jacobian =
          2.0 * (std::log(2.0) - std::abs(u) - std::log1p(std::exp(-2.0 * std::abs(u))));
      const double expected =
          -0.5 * noise[i] * noise[i] - bounded - 0.5 * std::log(2.0 * 3.14159265358979) - jacobian;
      CHECK(std::abs(density[i] - expected) < 1e-5 * (1.0 + std::abs(expected)));
    }
  }
}

void test_normal_variables_have_their_moments_and_know_their_place() {
  const std::size_t n = 200000;
  Floats all(n), part(100);
  const Philox random(3, 4);
  draw_normals(random, 1, 0, n, all.data());
  double sum = 0.0, squares = 0.0, fourth = 0.0;
  for (const float x : all) {
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  CHECK(std::abs(sum / n) < 0.01);
  CHECK(std::abs(squares / n - 1.0) < 0.02);
  CHECK(std::abs(fourth / n - 3.0) < 0.1);
  draw_normals(random, 1, 1000, 100, part.data());
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 1000));
}

// Parameters, gradient and the state of Adam.
struct Learned {
  Learned(std::size_t n, unsigned seed)
      : data(random_floats(n, seed, 0.2f)), grad(n), mean(n), square(n) {}
  Adam adam() { return {{mean.data(), square.data(), &steps}, 1e-3, 0.9, 0.999, 1e-8}; }

  Floats data, grad, mean, square;
  float steps = 0.0f;
};

struct Steps {
  explicit Steps(std::size_t n)
      : obs(random_floats(3 * n, 1)),
        next_obs(random_floats(3 * n, 2)),
        rewards(random_floats(n, 3)),
        discounts(n, 0.9f),
        moves(random_floats(2 * n, 4, 0.4f)),
        choices(n),
        errors(n) {
    for (std::size_t i = 0; i < n; ++i) choices[i] = static_cast<std::int64_t>(i % 4);
  }

  template <typename Rows>
  Rows rows() const {
    Rows rows;
    rows.n = rewards.size();
    rows.obs = obs.data();
    rows.next_obs = next_obs.data();
    rows.rewards = rewards.data();
    rows.discounts = discounts.data();
    return rows;
  }

  Floats obs, next_obs, rewards, discounts, moves;
  std::vector<std::int64_t> choices;
  Floats errors;
};

constexpr std::size_t kThreads[] = {1, 2, 4};
constexpr std::size_t kRows[] = {40, 128, 300};

void test_steps_of_q_learning_do_not_depend_on_threads() {
  for (const std::size_t n : kRows) {
    for (const bool dueling : {false, true}) {
      Floats first;
      for (const std::size_t threads : kThreads) {
        const QNetwork network(3, {16, 16}, Activation::relu, {4}, dueling);
        Learned online(network.n_parameters(), 5);
        Floats target = random_floats(network.n_parameters(), 6, 0.2f);
        QLearning learning(network, online.data.data(), target.data(), online.grad.data());
        Steps steps(n);
        auto rows = steps.rows<QRows>();
        rows.actions = steps.choices.data();
        for (int i = 0; i < 3; ++i) {
          Adam adam = online.adam();
          Team::lead(threads, [&](Team& team) {
            learning.step(rows, {true, true, 10.0, 0.1f}, &adam, steps.errors.data(), team);
          });
        }
        if (first.empty()) first = online.data;
        CHECK(online.data == first);
      }
    }
  }
}

void test_steps_of_sac_do_not_depend_on_threads() {
  for (const std::size_t n : kRows) {
    Floats first;
    for (const std::size_t threads : kThreads) {
      const SquashedActor network(3, 2, {16, 16}, Activation::relu);
      Critics critics(2, 5, {16, 16}, Activation::relu);
      Learned actor(network.n_parameters(), 1), values(critics.n_parameters(), 2), alpha(1, 3);
      Floats targets = values.data;
      SoftActorCritic learning(
          network, std::move(critics),
          {actor.data.data(), actor.grad.data(), values.data.data(), values.grad.data(),
           alpha.data.data(), alpha.grad.data(), targets.data()});
      Steps steps(n);
      auto rows = steps.rows<ContinuousRows>();
      rows.actions = steps.moves.data();
      for (std::uint64_t i = 0; i < 3; ++i) {
        Adam first_adam = actor.adam(), second_adam = values.adam(), third_adam = alpha.adam();
        Noise noise;
        noise.random = Philox(1, i);
        Team::lead(threads, [&](Team& team) {
          learning.step(rows, noise, {true, 0.0f, -2.0f, 1.0, 0.01f},
                        {&first_adam, &second_adam, &third_adam}, steps.errors.data(), team);
        });
      }
      if (first.empty()) first = actor.data;
      CHECK(actor.data == first);
    }
  }
}

void test_steps_of_td3_do_not_depend_on_threads() {
  for (const std::size_t n : kRows) {
    Floats first;
    for (const std::size_t threads : kThreads) {
      const DeterministicActor network(3, 2, {16, 16}, Activation::tanh);
      Critics critics(2, 5, {16, 16}, Activation::tanh);
      Learned actor(network.n_parameters(), 1), values(critics.n_parameters(), 2);
      Floats slow_actor = actor.data, slow_values = values.data;
      Td3 learning(network, std::move(critics),
                   {actor.data.data(), actor.grad.data(), values.data.data(), values.grad.data(),
                    slow_actor.data(), slow_values.data()});
      Steps steps(n);
      auto rows = steps.rows<ContinuousRows>();
      rows.actions = steps.moves.data();
      for (std::uint64_t i = 0; i < 3; ++i) {
        Adam first_adam = actor.adam(), second_adam = values.adam();
        Noise noise;
        noise.random = Philox(1, i);
        Team::lead(threads, [&](Team& team) {
          learning.step(rows, noise, {0.2f, 0.5f, 1.0, 0.01f, true, 2.5f},
                        {&first_adam, &second_adam}, steps.errors.data(), team);
        });
      }
      if (first.empty()) first = actor.data;
      CHECK(actor.data == first);
    }
  }
}

void test_random_actions_are_those_that_are_allowed() {
  const QNetwork network(1, {}, Activation::relu, {3, 2}, false);
  const Floats parameters(network.n_parameters()), obs(1000);
  std::vector<std::uint8_t> allowed;
  for (int i = 0; i < 1000; ++i) allowed.insert(allowed.end(), {0, 1, 1, 1, 0});
  std::vector<std::int64_t> actions(2000);
  QActor(network).act(parameters.data(), obs.data(), 1000, allowed.data(),
                      Exploration{1.0, Philox(1, 2)}, actions.data());
  int ones = 0;
  for (int i = 0; i < 1000; ++i) {
    CHECK(actions[2 * i] == 1 || actions[2 * i] == 2);
    CHECK(actions[2 * i + 1] == 0);
    ones += actions[2 * i] == 1;
  }
  CHECK(ones > 430 && ones < 570);
}

}  // namespace

int main() {
  test_networks_in_a_stack_are_those_alone();
  test_rows_that_are_kept_have_the_gradient_that_they_had();
  test_squashed_actions_are_those_of_the_library();
  test_normal_variables_have_their_moments_and_know_their_place();
  test_steps_of_q_learning_do_not_depend_on_threads();
  test_steps_of_sac_do_not_depend_on_threads();
  test_steps_of_td3_do_not_depend_on_threads();
  test_random_actions_are_those_that_are_allowed();
  return 0;
}
