// Heads, losses and their gradients against plain loops in double and differences of them.
#include <cmath>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "core/isa/kernels.hpp"
#include "core/learn/policy_gradient.hpp"
#include "policy_reference.hpp"

namespace {

using namespace sharpwave;

std::vector<std::int64_t> every_row(std::size_t n) {
  std::vector<std::int64_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

PolicyMetrics compute(PolicyCase& test, const std::vector<std::int64_t>& rows,
                      const PolicyLoss& loss, std::size_t threads = 1) {
  PolicyGradient learner(test.policy, test.parameters.data(), test.gradient.data());
  PolicyMetrics metrics;
  Team::lead(threads, [&](Team& team) {
    metrics = learner.compute(test.rollout, rows.data(), rows.size(), loss, team);
  });
  return metrics;
}

bool near(double a, double b) { return std::abs(a - b) <= 2e-5 * std::abs(b) + 2e-6; }

void check(PolicyCase& test, const std::vector<std::int64_t>& rows, const PolicyLoss& loss) {
  const PolicyMetrics found = compute(test, rows, loss);
  const std::vector<double> exact(test.parameters.begin(), test.parameters.end());
  const PolicyMetrics expected = test.measure(exact, rows, loss);
  CHECK(near(found.policy_loss, expected.policy_loss));
  CHECK(near(found.value_loss, expected.value_loss));
  CHECK(near(found.entropy, expected.entropy));
  CHECK(near(found.approx_kl, expected.approx_kl));
  CHECK(near(found.clip_fraction, expected.clip_fraction));
  CHECK(near(found.loss, expected.loss));
  double error = 0.0, length = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    std::vector<double> up = exact, down = exact;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    const double slope =
        (test.measure(up, rows, loss).loss - test.measure(down, rows, loss).loss) / 2e-5;
    error += (slope - test.gradient[i]) * (slope - test.gradient[i]);
    length += slope * slope;
  }
  CHECK(error < 1e-10 * length);
}

const PolicyLoss kPpo = {.is_clipped = true,
                         .clip = 0.2f,
                         .value_clip = std::nullopt,
                         .normalize = true,
                         .vf_coef = 0.7f,
                         .ent_coef = 0.05f};

void test_gradients_are_those_of_differences() {
  for (const bool is_masked : {false, true}) {
    for (const std::vector<std::size_t>& options :
         {std::vector<std::size_t>{2}, {5}, {3, 3}, {2, 4, 3}}) {
      PolicyCase test(Kind::choices, options, 33, is_masked);
      check(test, every_row(33), kPpo);
    }
    PolicyCase bits(Kind::bits, {1, 1, 1, 1}, 33, is_masked);
    check(bits, every_row(33), kPpo);
  }
  PolicyCase normals(Kind::normals, {1, 1, 1}, 33, false);
  check(normals, every_row(33), kPpo);
}

void test_every_option_of_the_loss_counts() {
  for (const Kind kind : {Kind::choices, Kind::normals}) {
    for (const bool is_clipped : {false, true}) {
      for (const bool clip_values : {false, true}) {
        for (const bool normalize : {false, true}) {
          PolicyCase test(kind, {1, 3, 2}, 40, false);
          PolicyLoss loss = kPpo;
          loss.is_clipped = is_clipped;
          if (clip_values) loss.value_clip = 0.1f;
          loss.normalize = normalize;
          check(test, every_row(40), loss);
          loss.ent_coef = 0.0f;
          loss.vf_coef = 0.0f;
          check(test, every_row(40), loss);
        }
      }
    }
  }
}

void test_networks_of_any_depth() {
  for (const Activation activation : kActivations) {
    for (const std::vector<std::size_t>& hidden : {std::vector<std::size_t>{}, {5}, {8, 9, 10}}) {
      PolicyCase test(Kind::choices, {3}, 20, false, hidden, activation);
      check(test, every_row(20), kPpo);
    }
  }
}

void test_errors_beyond_a_threshold_count_linearly() {
  for (const bool clip_values : {false, true}) {
    PolicyCase test(Kind::choices, {3}, 40, false);
    PolicyLoss loss = kPpo;
    loss.huber_delta = 0.4f;
    if (clip_values) loss.value_clip = 0.1f;
    check(test, every_row(40), loss);
    PolicyLoss squares = loss;
    squares.huber_delta = 1e6f;
    const double linear = compute(test, every_row(40), loss).value_loss;
    CHECK(linear < 0.9 * compute(test, every_row(40), squares).value_loss);
  }
}

void test_a_critic_may_have_inputs_of_its_own() {
  for (const std::size_t n_sharing : {1, 3, 40}) {
    for (const bool clip_values : {false, true}) {
      PolicyCase test(Kind::choices, {3}, 40, false, {9}, Activation::tanh, n_sharing);
      PolicyLoss loss = kPpo;
      loss.huber_delta = 0.7f;
      if (clip_values) loss.value_clip = 0.1f;
      check(test, every_row(40), loss);
      check(test, {5, 39, 0, 17, 17, 3, 26}, loss);
    }
  }
}

// Of many rows some lanes have rows of the actor only.
void test_shared_inputs_do_not_depend_on_the_number_of_threads() {
  for (const std::size_t n : {600, 5000}) {
    PolicyCase test(Kind::choices, {3}, n, false, {9}, Activation::tanh, 3);
    const std::vector<std::int64_t> rows = every_row(n);
    const PolicyMetrics one = compute(test, rows, kPpo);
    const std::vector<float> gradient = test.gradient;
    const std::vector<double> exact(test.parameters.begin(), test.parameters.end());
    CHECK(near(one.loss, test.measure(exact, rows, kPpo).loss));
    for (const std::size_t threads : {2, 3}) {
      CHECK(compute(test, rows, kPpo, threads).loss == one.loss);
      CHECK(test.gradient == gradient);
    }
  }
}

void test_values_of_shared_inputs_reach_their_rows() {
  PolicyCase test(Kind::choices, {3}, 300, false, {9}, Activation::tanh, 3);
  PolicyGradient learner(test.policy, test.parameters.data(), test.gradient.data());
  std::vector<float> log_probs(300), entropies(300), values(300);
  learner.evaluate(test.rollout, log_probs.data(), entropies.data(), values.data());
  const std::vector<double> exact(test.parameters.begin(), test.parameters.end());
  for (std::size_t row = 0; row < 300; ++row) CHECK(near(values[row], test.value(exact, row)));
}

void test_critics_learn_normalized_returns() {
  PolicyCase test(Kind::choices, {3}, 40, false, {9}, Activation::tanh, 2);
  for (float& x : test.returns) x = 30.0f + 5.0f * x;
  for (float& x : test.values) x = 30.0f + 5.0f * x;
  ValueNorm::State state = {0.0, 0.0, 0.0};
  ValueNorm learns(&state, 0.9), rests(&state, 1.0);
  CHECK(learns.scale().mean == 0.0f && learns.scale().deviation == 1.0f);
  PolicyLoss loss = kPpo;
  loss.value_clip = 0.1f;
  loss.value_norm = &learns;
  compute(test, every_row(40), loss);  // takes in the returns
  double mean = 0.0, square = 0.0;
  for (const float x : test.returns) {
    mean += x / 40.0;
    square += x * x / 40.0;
  }
  CHECK(near(state.mean, 0.1 * mean) && near(state.mean_square, 0.1 * square));
  CHECK(near(state.weight, 0.1));
  CHECK(near(learns.scale().mean, mean));
  CHECK(near(learns.scale().deviation, std::sqrt(square - mean * mean)));
  loss.value_norm = &rests;
  check(test, every_row(40), loss);
  CHECK(near(state.weight, 0.1));

  state = {5.0, 25.0, 1.0};  // returns that do not differ
  CHECK(near(rests.scale().deviation, 0.1));

  const float returns[] = {7.0f, 9.0f}, nobody[] = {0.0f, 0.0f}, second[] = {0.0f, 1.0f};
  learns.update(returns, nobody, 2);
  CHECK(state.mean == 5.0 && state.mean_square == 25.0 && state.weight == 1.0);
  learns.update(returns, second, 2);
  CHECK(near(state.mean, 0.9 * 5.0 + 0.1 * 9.0));
}

void test_rows_are_those_asked_for() {
  PolicyCase test(Kind::choices, {4}, 60, true);
  check(test, {5, 59, 0, 17, 17, 3, 40}, kPpo);
  PolicyLoss loss = kPpo;
  loss.normalize = false;
  check(test, {31}, loss);
}

void test_rows_without_weight_do_not_count() {
  PolicyCase test(Kind::choices, {4}, 40, false);
  test.weights.assign(40, 1.0f);
  for (std::size_t i = 0; i < 40; i += 3) test.weights[i] = 0.0f;
  test.rollout.weights = test.weights.data();
  check(test, every_row(40), kPpo);
  std::vector<std::int64_t> real;
  for (std::int64_t i = 0; i < 40; ++i) {
    if (i % 3 != 0) real.push_back(i);
  }
  const PolicyMetrics all = compute(test, every_row(40), kPpo);
  const PolicyMetrics some = compute(test, real, kPpo);
  CHECK(near(all.loss, some.loss));

  test.weights.assign(40, 0.0f);
  const PolicyMetrics none = compute(test, every_row(40), kPpo);
  CHECK(none.loss == 0.0);
  for (const float g : test.gradient) CHECK(g == 0.0f);
}

void test_a_row_alone_keeps_its_advantage() {
  PolicyCase test(Kind::choices, {4}, 2, false);
  const PolicyMetrics normalized = compute(test, {1}, kPpo);
  PolicyLoss loss = kPpo;
  loss.normalize = false;
  CHECK(normalized.loss == compute(test, {1}, loss).loss);
}

void test_many_rows_do_not_depend_on_the_number_of_threads() {
  for (const std::size_t n : {256, 1000, 5000}) {
    PolicyCase test(Kind::choices, {3}, n, false);
    const std::vector<std::int64_t> rows = every_row(n);
    const PolicyMetrics one = compute(test, rows, kPpo);
    const std::vector<float> gradient = test.gradient;
    const std::vector<double> exact(test.parameters.begin(), test.parameters.end());
    CHECK(near(one.loss, test.measure(exact, rows, kPpo).loss));
    for (const std::size_t threads : {2, 3, 8}) {
      const PolicyMetrics many = compute(test, rows, kPpo, threads);
      CHECK(many.loss == one.loss);
      CHECK(test.gradient == gradient);
    }
  }
}

void test_nan_is_not_lost() {
  for (const Activation activation : kActivations) {
    for (const std::size_t where : {std::size_t{0}, std::size_t{60}, std::size_t{250}}) {
      PolicyCase test(Kind::choices, {3}, 20, false, {9, 17}, activation);
      test.parameters[where] = NAN;
      CHECK(std::isnan(compute(test, every_row(20), kPpo).loss));
    }
  }
}

// Log-probabilities of every instruction set, from tiny to huge logits.
void test_softmax_is_that_of_the_library() {
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int t = 0; t < count; ++t) {
    for (const float scale : {1e-6f, 1.0f, 30.0f, 1e4f}) {
      constexpr std::size_t n = 64, options = 5;
      const std::vector<float> z = random_floats(n * options, 9, scale);
      std::vector<float> logits = z, probs(n * options), entropy(n), log_prob(n), actions(n);
      for (std::size_t i = 0; i < n; ++i) actions[i] = static_cast<float>(i % options);
      const Choice choice = {options, n, actions.data(), nullptr, 0};
      tables[t]->policy.choice_forward(choice, logits.data(), probs.data(), entropy.data(),
                                       log_prob.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        double sum = 0.0, highest = -1e30, h = 0.0;
        for (std::size_t j = 0; j < options; ++j) highest = std::max<double>(highest, z[j * n + i]);
        for (std::size_t j = 0; j < options; ++j) sum += std::exp(z[j * n + i] - highest);
        for (std::size_t j = 0; j < options; ++j) {
          const double log_p = z[j * n + i] - highest - std::log(sum);
          CHECK(std::abs(logits[j * n + i] - log_p) <= 3e-7 * std::abs(log_p) + 3e-7);
          CHECK(std::abs(probs[j * n + i] - std::exp(log_p)) <= 1e-6);
          h -= std::exp(log_p) * log_p;
          if (j == i % options) CHECK(log_prob[i] == logits[j * n + i]);
        }
        CHECK(std::abs(entropy[i] - h) <= 2e-6);
      }
    }
  }
}

// A small divergence has all its digits.
void test_divergences_do_not_cancel() {
  const Kernels* tables[3];
  const int count = supported_kernels(tables);
  for (int t = 0; t < count; ++t) {
    for (const float x : {1e-4f, -1e-3f, 0.3f, -2.0f, 5.0f}) {
      const std::vector<float> now(kLanes, x), then(kLanes), one(kLanes, 1.0f / kLanes);
      std::vector<float> w(kLanes);
      const PolicySums sums = tables[t]->policy.clipped_surrogate(
          now.data(), then.data(), one.data(), one.data(), 0.2f, w.data(), kLanes);
      const double exact = std::expm1(static_cast<double>(x)) - static_cast<double>(x);
      CHECK(std::abs(sums.kl - exact) <= 1e-6 * exact);
    }
  }
}

}  // namespace

int main() {
  test_softmax_is_that_of_the_library();
  test_divergences_do_not_cancel();
  test_gradients_are_those_of_differences();
  test_every_option_of_the_loss_counts();
  test_networks_of_any_depth();
  test_errors_beyond_a_threshold_count_linearly();
  test_a_critic_may_have_inputs_of_its_own();
  test_shared_inputs_do_not_depend_on_the_number_of_threads();
  test_values_of_shared_inputs_reach_their_rows();
  test_critics_learn_normalized_returns();
  test_rows_are_those_asked_for();
  test_rows_without_weight_do_not_count();
  test_a_row_alone_keeps_its_advantage();
  test_many_rows_do_not_depend_on_the_number_of_threads();
  test_nan_is_not_lost();
  return 0;
}
