// Actions of a policy: as likely as it says, never forbidden, a function of the row's number alone.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "check.hpp"
#include "chi_square.hpp"
#include "core/learn/policy_actor.hpp"
#include "core/learn/shuffle.hpp"
#include "policy_reference.hpp"

namespace {

using namespace sharpwave;

struct Played {
  std::vector<std::int64_t> choices;
  std::vector<float> moves, log_probs, values;
};

Played play(const PolicyCase& test, std::optional<Draws> draws, std::size_t first = 0,
            std::size_t n = 0) {
  if (n == 0) n = test.n_rows - first;
  const std::size_t k = test.options.size();
  Played played{std::vector<std::int64_t>(n * k), std::vector<float>(n * k), std::vector<float>(n),
                std::vector<float>(n)};
  const bool moves = test.kind == Kind::normals;
  PolicyActor actor(test.policy);
  const std::uint8_t* masks =
      test.masks.empty() ? nullptr : test.masks.data() + first * test.policy.head().n_outputs();
  if (draws) draws->first_row = first;
  actor.act(test.parameters.data(), test.obs.data() + first * PolicyCase::kInputs, n, masks, draws,
            {.choices = moves ? nullptr : played.choices.data(),
             .moves = moves ? played.moves.data() : nullptr,
             .log_probs = played.log_probs.data(),
             .values = played.values.data()});
  return played;
}

// Every row of the case sees the first observation, under the first mask.
void repeat_the_first_row(PolicyCase& test) {
  const std::size_t n_outputs = test.policy.head().n_outputs();
  for (std::size_t row = 1; row < test.n_rows; ++row) {
    std::copy_n(test.obs.begin(), PolicyCase::kInputs,
                test.obs.begin() + static_cast<std::ptrdiff_t>(row * PolicyCase::kInputs));
    if (test.masks.empty()) continue;
    std::copy_n(test.masks.begin(), n_outputs,
                test.masks.begin() + static_cast<std::ptrdiff_t>(row * n_outputs));
  }
}

double log_prob_of(PolicyCase& test, const Played& played, std::size_t row) {
  const std::size_t k = test.options.size();
  for (std::size_t i = 0; i < k; ++i) {
    test.choices[row * k + i] = played.choices[row * k + i];
    test.moves[row * k + i] = played.moves[row * k + i];
  }
  return test.head({test.parameters.begin(), test.parameters.end()}, row).log_prob;
}

void test_actions_come_with_their_log_probabilities_and_values() {
  for (const Kind kind : {Kind::choices, Kind::bits, Kind::normals}) {
    for (const bool masked : {false, true}) {
      if (masked && kind == Kind::normals) continue;
      const std::vector<std::size_t> options =
          kind == Kind::choices ? std::vector<std::size_t>{3, 4} : std::vector<std::size_t>{1, 1};
      PolicyCase test(kind, options, 150, masked);
      const std::vector<double> exact(test.parameters.begin(), test.parameters.end());
      for (const bool drawn : {false, true}) {
        const Played played = play(test, drawn ? std::optional(Draws{Philox(3, 4)}) : std::nullopt);
        for (std::size_t row = 0; row < test.n_rows; ++row) {
          CHECK(std::abs(log_prob_of(test, played, row) - played.log_probs[row]) < 1e-5);
          const double value = test.value(exact, row);
          CHECK(std::abs(value - played.values[row]) < 1e-5);
        }
      }
    }
  }
}

void test_choices_are_as_likely_as_the_policy_says() {
  for (const bool masked : {false, true}) {
    PolicyCase test(Kind::choices, {5}, 20000, masked);
    repeat_the_first_row(test);
    std::vector<double> probabilities(5);
    for (std::size_t j = 0; j < 5; ++j) {
      test.choices[0] = static_cast<std::int64_t>(j);
      probabilities[j] =
          std::exp(test.head({test.parameters.begin(), test.parameters.end()}, 0).log_prob);
    }
    std::vector<std::uint64_t> counts(5);
    for (const std::int64_t choice : play(test, Draws{Philox(1, 2)}).choices) ++counts[choice];
    CHECK(std::abs(chi_square_excess(counts, probabilities)) < 5.0);
    for (std::size_t j = 0; masked && j < 5; ++j) CHECK(test.masks[j] == 1 || counts[j] == 0);
    const auto best = std::max_element(probabilities.begin(), probabilities.end());
    for (const std::int64_t choice : play(test, std::nullopt).choices) {
      CHECK(choice == best - probabilities.begin());
    }
  }
}

void test_bits_are_as_likely_as_the_policy_says() {
  PolicyCase test(Kind::bits, {1}, 20000, false);
  repeat_the_first_row(test);
  test.choices[0] = 1;
  const double p =
      std::exp(test.head({test.parameters.begin(), test.parameters.end()}, 0).log_prob);
  const std::vector<std::int64_t> bits = play(test, Draws{Philox(1, 2)}).choices;
  const double share = static_cast<double>(std::accumulate(bits.begin(), bits.end(), 0L)) / 20000.0;
  CHECK(std::abs(share - p) < 5.0 * std::sqrt(p * (1.0 - p) / 20000.0));
  CHECK(play(test, std::nullopt).choices[0] == (p > 0.5));
}

void test_moves_have_the_mean_and_deviation_of_the_policy() {
  PolicyCase test(Kind::normals, {1, 1}, 20000, false);
  repeat_the_first_row(test);
  const std::vector<float> means = play(test, std::nullopt).moves;
  const std::vector<float> moves = play(test, Draws{Philox(5, 6)}).moves;
  for (std::size_t j = 0; j < 2; ++j) {
    double sum = 0.0, squares = 0.0, fourth = 0.0;
    for (std::size_t i = 0; i < test.n_rows; ++i) {
      const double z = (moves[2 * i + j] - means[j]) / std::exp(test.parameters[j]);
      sum += z / 20000.0;
      squares += z * z / 20000.0;
      fourth += z * z * z * z / 20000.0;
    }
    CHECK(std::abs(sum) < 5.0 / std::sqrt(20000.0));
    CHECK(std::abs(squares - 1.0) < 5.0 * std::sqrt(2.0 / 20000.0));
    CHECK(std::abs(fourth - 3.0) < 5.0 * std::sqrt(96.0 / 20000.0));
  }
}

void test_a_row_does_not_depend_on_the_others() {
  PolicyCase test(Kind::choices, {7, 2}, 300, true);
  const Played whole = play(test, Draws{Philox(8, 9)});
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{140}}) {
    const Played part = play(test, Draws{Philox(8, 9)}, first, 7);
    for (std::size_t i = 0; i < 14; ++i) CHECK(part.choices[i] == whole.choices[2 * first + i]);
    for (std::size_t i = 0; i < 7; ++i) {
      CHECK(std::abs(part.values[i] - whole.values[first + i]) < 1e-6);
    }
  }
}

void test_not_a_number_is_survived() {
  for (const Kind kind : {Kind::choices, Kind::bits, Kind::normals}) {
    PolicyCase test(kind, {2}, 20, false);
    std::fill(test.parameters.begin(), test.parameters.end(), NAN);
    for (const bool drawn : {false, true}) {
      const Played played = play(test, drawn ? std::optional(Draws{Philox(3, 4)}) : std::nullopt);
      for (const std::int64_t choice : played.choices) CHECK(choice == 0 || choice == 1);
      CHECK(std::isnan(played.values[0]));
    }
  }
}

void test_orders_are_permutations_of_equal_likelihood() {
  constexpr std::size_t kOrders = 6000;
  std::vector<std::int64_t> orders(kOrders * 3);
  shuffle(Philox(1, 1), kOrders, 3, orders.data());
  std::vector<std::uint64_t> counts(6);
  std::vector<std::vector<std::int64_t>> known;
  for (std::size_t i = 0; i < kOrders; ++i) {
    const std::vector<std::int64_t> order(orders.begin() + static_cast<std::ptrdiff_t>(3 * i),
                                          orders.begin() + static_cast<std::ptrdiff_t>(3 * i + 3));
    const auto found = std::find(known.begin(), known.end(), order);
    if (found == known.end()) known.push_back(order);
    ++counts[static_cast<std::size_t>(std::find(known.begin(), known.end(), order) -
                                      known.begin())];
  }
  CHECK(known.size() == 6);
  CHECK(std::abs(chi_square_excess(counts, std::vector<double>(6, 1.0 / 6.0))) < 5.0);
}

}  // namespace

int main() {
  test_actions_come_with_their_log_probabilities_and_values();
  test_choices_are_as_likely_as_the_policy_says();
  test_bits_are_as_likely_as_the_policy_says();
  test_moves_have_the_mean_and_deviation_of_the_policy();
  test_a_row_does_not_depend_on_the_others();
  test_not_a_number_is_survived();
  test_orders_are_permutations_of_equal_likelihood();
  return 0;
}
