// Whole updates of PPO and A2C: optimizers, clipping, minibatches, the limit of divergence,
// threads.
#include <cmath>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "core/learn/a2c.hpp"
#include "core/learn/ppo.hpp"
#include "policy_reference.hpp"

namespace {

using namespace sharpwave;

PpoOptions options_of(std::size_t batch_size, std::size_t threads = 1) {
  return {.loss = {.is_clipped = true,
                   .clip = 0.2f,
                   .value_clip = std::nullopt,
                   .normalize = true,
                   .vf_coef = 0.5f,
                   .ent_coef = 0.01f},
          .batch_size = batch_size,
          .max_grad_norm = 0.5,
          .target_kl = {},
          .threads = threads};
}

std::vector<std::int64_t> shuffled(std::size_t n, std::size_t epochs) {
  std::mt19937 random(11);
  std::vector<std::int64_t> orders;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<std::int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    orders.insert(orders.end(), order.begin(), order.end());
  }
  return orders;
}

// Memory of a run of PPO.
struct Run {
  PolicyCase test;
  std::vector<float> mean, square;
  float steps = 0.0f;
  PolicyGradient learner;

  Run(Kind kind, std::vector<std::size_t> options, std::size_t n_rows,
      std::vector<std::size_t> hidden)
      : test(kind, std::move(options), n_rows, false, std::move(hidden)),
        mean(test.parameters.size()),
        square(test.parameters.size()),
        learner(test.policy, test.parameters.data(), test.gradient.data()) {}

  PpoResult update(const std::vector<std::int64_t>& orders, const PpoOptions& options,
                   double lr = 1e-2) {
    Adam adam({mean.data(), square.data(), &steps}, lr, 0.9, 0.999, 1e-5);
    return ppo_update(&learner, test.rollout, orders.data(), orders.size() / test.n_rows, options,
                      &adam);
  }
};

void test_a_step_of_adam_is_that_of_its_formula() {
  Run run(Kind::choices, {3}, 30, {8});
  const std::vector<std::int64_t> orders = shuffled(30, 3);
  PpoOptions options = options_of(30);
  std::vector<double> x(run.test.parameters.begin(), run.test.parameters.end());
  std::vector<double> m(x.size()), v(x.size());
  for (std::size_t step = 1; step <= 3; ++step) {
    const std::vector<std::int64_t> order(orders.begin() + 30 * (static_cast<long>(step) - 1),
                                          orders.begin() + 30 * static_cast<long>(step));
    const PpoResult result = run.update(order, options);
    double norm = 0.0;
    for (const float g : run.test.gradient) norm += static_cast<double>(g) * g;
    CHECK(std::sqrt(norm) <= 0.5 + 1e-6);
    CHECK(result.means.grad_norm > std::sqrt(norm) - 1e-6);
    CHECK(run.steps == static_cast<float>(step));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double g = run.test.gradient[i], t = static_cast<double>(step);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      x[i] -= 1e-2 * m[i] / (1.0 - std::pow(0.9, t)) /
              (std::sqrt(v[i] / (1.0 - std::pow(0.999, t))) + 1e-5);
      CHECK(std::abs(x[i] - run.test.parameters[i]) < 2e-6);
    }
  }
}

void test_passes_in_the_same_order_are_those_of_updates_apart() {
  PpoOptions options = options_of(40);
  options.loss.value_clip = 0.2f;  // by old values, which are normalized as returns and advantages
  ValueNorm::State together_moments{}, apart_moments{};
  ValueNorm together_norm(&together_moments, 0.9), apart_norm(&apart_moments, 0.9);
  Run together(Kind::choices, {3}, 40, {8}), apart(Kind::choices, {3}, 40, {8});
  const std::vector<std::int64_t> order = shuffled(40, 1);
  std::vector<std::int64_t> orders;
  for (int i = 0; i < 3; ++i) orders.insert(orders.end(), order.begin(), order.end());
  options.loss.value_norm = &together_norm;
  together.update(orders, options);
  options.loss.value_norm = &apart_norm;
  for (int i = 0; i < 3; ++i) apart.update(order, options);
  CHECK(together.test.parameters == apart.test.parameters);
}

void test_a_step_of_rmsprop_is_that_of_its_formula() {
  PolicyCase test(Kind::normals, {1, 1}, 30, false);
  PolicyGradient learner(test.policy, test.parameters.data(), test.gradient.data());
  std::vector<float> square(test.parameters.size(), 0.25f);
  const std::vector<float> before = test.parameters;
  Rmsprop rmsprop(square.data(), 1e-2, 0.99, 1e-5);
  const A2cOptions options = {.loss = {.is_clipped = false,
                                       .clip = 0.0f,
                                       .value_clip = std::nullopt,
                                       .normalize = false,
                                       .vf_coef = 0.5f,
                                       .ent_coef = 0.01f},
                              .max_grad_norm = 1e9,
                              .threads = 1};
  const PolicyMetrics metrics = a2c_update(&learner, test.rollout, options, &rmsprop);
  CHECK(metrics.grad_norm > 0.0);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double g = test.gradient[i], v = 0.99 * 0.25 + 0.01 * g * g;
    CHECK(std::abs(square[i] - v) <= 1e-6 * v);
    CHECK(std::abs(before[i] - 1e-2 * g / (std::sqrt(v) + 1e-5) - test.parameters[i]) < 1e-6);
  }
}

void test_the_last_minibatch_of_a_pass_may_be_smaller() {
  Run run(Kind::choices, {3}, 50, {8});
  run.update(shuffled(50, 2), options_of(16));
  CHECK(run.steps == 8.0f);
  run.update(shuffled(50, 1), options_of(1000));
  CHECK(run.steps == 9.0f);
}

void test_no_step_is_taken_once_the_policy_has_moved_too_far() {
  Run run(Kind::choices, {3}, 64, {8});
  const std::vector<std::int64_t> orders = shuffled(64, 5);
  PpoOptions options = options_of(16);
  options.target_kl = 1e-12;
  const std::vector<float> before = run.test.parameters;
  const PpoResult result = run.update(orders, options);
  CHECK(result.n_epochs == 1);
  CHECK(run.steps == 0.0f);
  CHECK(run.test.parameters == before);
  CHECK(result.means.approx_kl > 0.0);

  options.target_kl = 1e9;
  Run free(Kind::choices, {3}, 64, {8});
  run.update(orders, options);
  free.update(orders, options_of(16));
  CHECK(run.test.parameters == free.test.parameters);
  CHECK(run.steps == 20.0f);
}

void test_updates_do_not_depend_on_the_number_of_threads() {
  for (const Kind kind : {Kind::choices, Kind::normals}) {
    std::vector<float> expected;
    double loss = 0.0;
    for (const std::size_t threads : {1, 2, 4}) {
      Run run(kind, {2, 2}, 700, {64, 192});  // more parameters than a block
      const PpoResult result = run.update(shuffled(700, 3), options_of(300, threads));
      if (threads == 1) {
        expected = run.test.parameters;
        loss = result.means.loss;
      }
      CHECK(run.test.parameters == expected);
      CHECK(result.means.loss == loss);
    }
  }
}

void test_learning_lowers_the_loss() {
  Run run(Kind::choices, {4}, 128, {16});
  const PpoResult first = run.update(shuffled(128, 1), options_of(128), 1e-3);
  PpoResult last = first;
  for (int i = 0; i < 50; ++i) last = run.update(shuffled(128, 2), options_of(128), 1e-3);
  CHECK(last.means.loss < first.means.loss - 0.05);
}

}  // namespace

int main() {
  test_a_step_of_adam_is_that_of_its_formula();
  test_passes_in_the_same_order_are_those_of_updates_apart();
  test_a_step_of_rmsprop_is_that_of_its_formula();
  test_the_last_minibatch_of_a_pass_may_be_smaller();
  test_no_step_is_taken_once_the_policy_has_moved_too_far();
  test_updates_do_not_depend_on_the_number_of_threads();
  test_learning_lowers_the_loss();
  return 0;
}
