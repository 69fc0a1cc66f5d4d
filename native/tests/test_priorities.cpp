#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "core/priorities.hpp"
#include "tests/check.hpp"
#include "tests/chi_square.hpp"
#include "tests/splitmix.hpp"

namespace {

using sharpwave::Priorities;
using sharpwave::PriorityKind;

constexpr std::size_t kCapacities[] = {1, 15, 16, 17, 255, 257, 4096, 100003};

bool near(double a, double b, double relative) {
  return std::fabs(a - b) <= relative * std::fabs(b);
}

std::vector<float> random_priorities(std::size_t n, SplitMix& random) {
  std::vector<float> priorities(n);
  for (float& priority : priorities) {
    priority = static_cast<float>(0.01 + 5.0 * random.uniform());
  }
  return priorities;
}

std::vector<std::uint64_t> random_slots(std::size_t n, std::size_t capacity, SplitMix& random) {
  std::vector<std::uint64_t> slots(n);
  for (std::uint64_t& slot : slots) {
    slot = random.below(capacity);
  }
  return slots;
}

std::vector<std::uint64_t> all_slots(std::size_t n) {
  std::vector<std::uint64_t> slots(n);
  std::iota(slots.begin(), slots.end(), std::uint64_t{0});
  return slots;
}

// leaf = (1 / rank) ** alpha by counting, for each row, those that come before it.
std::vector<double> rank_leaves(const std::vector<float>& priorities, double alpha) {
  std::vector<std::size_t> order;
  for (std::size_t slot = 0; slot < priorities.size(); ++slot) {
    if (priorities[slot] > 0.0f) {
      order.push_back(slot);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return priorities[a] > priorities[b]; });
  std::vector<double> leaves(priorities.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    leaves[order[i]] = std::pow(1.0 / static_cast<double>(i + 1), alpha);
  }
  return leaves;
}

void refuses_an_alpha_out_of_range() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS(std::invalid_argument, Priorities(4, PriorityKind::rank, -0.1));
  CHECK_THROWS(std::invalid_argument, Priorities(4, PriorityKind::rank, nan));
  CHECK_THROWS(std::invalid_argument, Priorities(0, PriorityKind::rank, 0.5));
}

void power_is_accurate() {
  const sharpwave::Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  std::vector<float> x = {0.0f, 1.0f, 0x1p-149f, 0x1p-126f, 3.0e38f, 0.70710677f, 0.70710683f};
  SplitMix random(1);
  while (x.size() < 5003) {
    x.push_back(static_cast<float>(std::exp2(random.uniform() * 250.0 - 125.0)));
  }
  const float low = Priorities::kMinLeaf;
  const float high = Priorities::kMaxLeaf;
  for (const double exponent : {0.0, 0.4, 0.5, 0.6, 1.0, 2.0, 7.5, -0.7}) {
    std::vector<float> first(x.size());
    tables[0]->tree.power(x.data(), x.size(), exponent, low, high, first.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::pow(static_cast<double>(x[i]), exponent);
      const double expected =
          x[i] == 0.0f ? 0.0
                       : std::clamp(exact, static_cast<double>(low), static_cast<double>(high));
      CHECK(near(static_cast<double>(first[i]), expected, 1e-7));
    }
    CHECK(first[1] == 1.0f);
    for (int table = 1; table < count; ++table) {
      std::vector<float> other(x.size());
      tables[table]->tree.power(x.data(), x.size(), exponent, low, high, other.data());
      CHECK(other == first);
    }
  }
}

void leaves_are_priorities_to_the_alpha() {
  SplitMix random(2);
  for (const std::size_t capacity : kCapacities) {
    Priorities rows(capacity, PriorityKind::proportional, 0.6);
    std::vector<float> priorities = random_priorities(capacity, random);
    rows.push(0, capacity, priorities.data());
    const std::vector<std::uint64_t> slots = random_slots(300, capacity, random);
    const std::vector<float> changes = random_priorities(300, random);
    rows.update(slots.data(), changes.data(), slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      priorities[slots[i]] = changes[i];
    }
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      const double given = static_cast<double>(priorities[slot]);
      CHECK(near(static_cast<double>(rows.leaf(slot)), std::pow(given, 0.6), 1e-6));
      CHECK(near(static_cast<double>(rows.priority(slot)), given, 1e-6));
    }
  }
}

void an_alpha_of_one_keeps_priorities_and_of_zero_makes_them_equal() {
  SplitMix random(3);
  const std::vector<float> priorities = random_priorities(100, random);
  Priorities same(100, PriorityKind::proportional, 1.0);
  Priorities equal(100, PriorityKind::proportional, 0.0);
  same.push(0, 100, priorities.data());
  equal.push(0, 100, priorities.data());
  for (std::size_t slot = 0; slot < 100; ++slot) {
    CHECK(same.leaf(slot) == priorities[slot]);
    CHECK(equal.leaf(slot) == 1.0f);
  }
}

void new_rows_get_the_highest_priority_seen() {
  for (const PriorityKind kind : {PriorityKind::proportional, PriorityKind::rank}) {
    Priorities rows(8, kind, 0.6);
    CHECK(rows.max_priority() == 1.0);
    rows.push(0, 2, nullptr);
    CHECK(rows.priority(0) == 1.0f && rows.priority(1) == 1.0f);
    const std::uint64_t slots[] = {0, 1};
    const float priorities[] = {5.0f, 0.5f};
    rows.update(slots, priorities, 2);
    CHECK(rows.max_priority() == 5.0);
    rows.push(2, 1, nullptr);
    rows.prepare();
    CHECK(near(static_cast<double>(rows.priority(2)), 5.0, 1e-6));
    if (kind == PriorityKind::proportional) {
      CHECK(rows.leaf(2) == rows.leaf(0));
    }
    const float nine = 9.0f;
    rows.push(3, 1, &nine);
    CHECK(rows.max_priority() == 9.0);
    rows.set_max_priority(2.0);
    rows.push(4, 1, nullptr);
    CHECK(near(static_cast<double>(rows.priority(4)), 2.0, 1e-6));
    rows.clear();
    CHECK(rows.max_priority() == 1.0);
    CHECK(rows.total() == 0.0);
    CHECK(rows.priority(3) == 0.0f);
  }
}

void extreme_priorities_stay_drawable_and_finite() {
  for (const double alpha : {0.5, 1.0, 4.0}) {
    Priorities rows(4096, PriorityKind::proportional, alpha);
    const float largest = std::numeric_limits<float>::max();
    const float smallest = std::numeric_limits<float>::denorm_min();
    for (std::size_t slot = 0; slot < 4096; ++slot) {
      rows.push(slot, 1, slot % 2 == 0 ? &largest : &smallest);
    }
    CHECK(std::isfinite(rows.total()));
    CHECK(rows.leaf(1) > 0.0f);
    CHECK(rows.leaf(0) <= Priorities::kMaxLeaf);
    const std::vector<std::uint64_t> slots = all_slots(4096);
    std::vector<float> weights(4096);
    rows.weights(slots.data(), slots.size(), 1.0, false, weights.data());
    for (const float weight : weights) {
      CHECK(weight >= 0.0f && weight <= 1.0f);
    }
    CHECK(weights[1] == 1.0f);
  }
  const double rows = 0x1p32;
  CHECK(rows * static_cast<double>(Priorities::kMaxLeaf) <
        static_cast<double>(std::numeric_limits<float>::max()));
}

void removed_rows_and_rows_of_zero_are_never_drawn() {
  SplitMix random(4);
  for (const PriorityKind kind : {PriorityKind::proportional, PriorityKind::rank}) {
    for (const double alpha : {0.0, 0.7}) {
      Priorities rows(257, kind, alpha);
      std::vector<float> priorities = random_priorities(257, random);
      for (std::size_t slot = 0; slot < 257; slot += 3) {
        priorities[slot] = 0.0f;
      }
      rows.push(0, 257, priorities.data());
      for (std::size_t slot = 1; slot < 257; slot += 3) {
        rows.remove(slot);
      }
      rows.prepare();
      for (int i = 0; i < 20000; ++i) {
        const double target = random.uniform() * rows.total();
        std::uint64_t slot = 0;
        rows.find(&target, 1, &slot);
        CHECK(slot % 3 == 2);
      }
    }
  }
}

void weights_follow_the_paper() {
  SplitMix random(5);
  for (const std::size_t capacity : kCapacities) {
    Priorities rows(capacity, PriorityKind::proportional, 0.7);
    std::vector<float> priorities = random_priorities(capacity, random);
    if (capacity > 1) {
      priorities[0] = 0.0f;
    }
    rows.push(0, capacity, priorities.data());
    std::vector<std::uint64_t> slots = random_slots(300, capacity, random);
    std::vector<float> weights(slots.size());
    std::vector<float> batch_weights(slots.size());
    const double beta = 0.4;
    rows.weights(slots.data(), slots.size(), beta, false, weights.data());
    rows.weights(slots.data(), slots.size(), beta, true, batch_weights.data());
    double largest = 0.0;
    std::vector<double> expected(capacity);
    double largest_in_batch = 0.0;
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      if (priorities[slot] > 0.0f) {
        const double probability =
            std::pow(static_cast<double>(priorities[slot]), 0.7) / rows.total();
        expected[slot] = std::pow(static_cast<double>(capacity) * probability, -beta);
        largest = std::max(largest, expected[slot]);
      }
    }
    for (const std::uint64_t slot : slots) {
      largest_in_batch = std::max(largest_in_batch, expected[slot]);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      CHECK(weights[i] <= 1.0f && batch_weights[i] <= 1.0f);
      CHECK(near(static_cast<double>(weights[i]), expected[slots[i]] / largest, 1e-6));
      CHECK(
          near(static_cast<double>(batch_weights[i]), expected[slots[i]] / largest_in_batch, 1e-6));
    }
    rows.weights(slots.data(), slots.size(), 0.0, false, weights.data());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      CHECK(weights[i] == (priorities[slots[i]] > 0.0f ? 1.0f : 0.0f));
    }
  }
}

// A zero among the priorities must not lift any weight above 1.
void weights_are_at_most_one_with_zeros_present() {
  Priorities rows(4, PriorityKind::proportional, 0.6);
  const float priorities[] = {1e-3f, 1.0f, 1.0f, 0.0f};
  rows.push(0, 4, priorities);
  const std::uint64_t slots[] = {0, 1, 2};
  float weights[3];
  for (const double beta : {0.0, 0.4, 1.0}) {
    rows.weights(slots, 3, beta, false, weights);
    CHECK(weights[0] == 1.0f);
    CHECK(weights[1] <= 1.0f && weights[1] == weights[2]);
  }
}

void ranks_are_exact_after_prepare() {
  SplitMix random(6);
  for (const std::size_t capacity : kCapacities) {
    Priorities rows(capacity, PriorityKind::rank, 0.7);
    std::vector<float> priorities = random_priorities(capacity, random);
    for (float& priority : priorities) {
      priority = std::floor(priority * 10.0f) / 10.0f;
    }
    rows.push(0, capacity, priorities.data());
    rows.prepare();
    const std::vector<double> expected = rank_leaves(priorities, 0.7);
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      CHECK(rows.priority(slot) == priorities[slot]);
      CHECK(near(static_cast<double>(rows.leaf(slot)), expected[slot], 1e-6));
    }
  }
}

void small_buffers_have_exact_ranks_at_every_change() {
  SplitMix random(7);
  Priorities rows(15, PriorityKind::rank, 1.0);
  std::vector<float> priorities(15);
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t slot = random.below(15);
    const float priority = random.below(4) == 0 ? 0.0f : static_cast<float>(random.below(6)) + 0.5f;
    priorities[slot] = priority;
    switch (random.below(3)) {
      case 0:
        rows.push(slot, 1, &priority);
        break;
      case 1:
        rows.update(&slot, &priority, 1);
        break;
      default:
        rows.remove(slot);
        priorities[slot] = 0.0f;
    }
    rows.prepare();
    const std::vector<double> expected = rank_leaves(priorities, 1.0);
    for (std::size_t i = 0; i < 15; ++i) {
      CHECK(near(static_cast<double>(rows.leaf(i)), expected[i], 1e-6));
    }
  }
}

void between_sorts_a_row_takes_its_rank_in_the_last_order() {
  Priorities rows(100, PriorityKind::rank, 1.0);
  std::vector<float> priorities(100);
  std::iota(priorities.begin(), priorities.end(), 1.0f);
  rows.push(0, 100, priorities.data());
  rows.prepare();
  const std::uint64_t slots[] = {0, 1, 2};
  const float changes[] = {200.0f, 50.5f, 0.5f};
  rows.update(slots, changes, 3);
  rows.prepare();
  CHECK(rows.leaf(0) == 1.0f);
  CHECK(near(static_cast<double>(rows.leaf(1)), 1.0 / 51.0, 1e-6));
  CHECK(near(static_cast<double>(rows.leaf(2)), 1.0 / 101.0, 1e-6));
  CHECK(rows.leaf(99) == 1.0f);
  for (int i = 0; i < 3; ++i) {
    rows.update(slots, changes, 3);
  }
  rows.prepare();
  CHECK(rows.leaf(0) == 1.0f);
  CHECK(rows.leaf(99) == 0.5f);
}

void frequencies_follow_the_priorities() {
  SplitMix random(8);
  for (const PriorityKind kind : {PriorityKind::proportional, PriorityKind::rank}) {
    const std::size_t capacity = 500;
    const std::vector<float> priorities = random_priorities(capacity, random);
    Priorities rows(capacity, kind, 0.6);
    rows.push(0, capacity, priorities.data());
    rows.prepare();
    std::vector<double> probabilities = rank_leaves(priorities, 0.6);
    if (kind == PriorityKind::proportional) {
      for (std::size_t slot = 0; slot < capacity; ++slot) {
        probabilities[slot] = std::pow(static_cast<double>(priorities[slot]), 0.6);
      }
    }
    const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
    for (double& probability : probabilities) {
      probability /= sum;
    }
    std::vector<std::uint64_t> counts(capacity);
    std::vector<double> targets(400000);
    for (double& target : targets) {
      target = random.uniform() * rows.total();
    }
    std::vector<std::uint64_t> slots(targets.size());
    rows.find(targets.data(), targets.size(), slots.data());
    for (const std::uint64_t slot : slots) {
      ++counts[slot];
    }
    CHECK(chi_square_excess(counts, probabilities) < 4.5);
  }
}

// Restored rows are drawn as the saved ones are, also in the middle between two sorts.
void saved_rows_continue_bit_for_bit() {
  for (const PriorityKind kind : {PriorityKind::proportional, PriorityKind::rank}) {
    SplitMix random(9);
    const std::size_t capacity = 257;
    Priorities saved(capacity, kind, 0.6);
    const std::vector<float> start = random_priorities(200, random);
    saved.push(0, 200, start.data());
    saved.prepare();
    const std::vector<std::uint64_t> slots = random_slots(20, 200, random);
    const std::vector<float> changes = random_priorities(20, random);
    saved.update(slots.data(), changes.data(), 20);
    std::vector<float> leaves(capacity);
    std::vector<float> priorities(capacity);
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      leaves[slot] = saved.leaf(slot);
      priorities[slot] = saved.priority(slot);
    }
    Priorities restored(capacity, kind, 0.6);
    if (kind == PriorityKind::rank) {
      restored.push(0, capacity, priorities.data());
    }
    restored.set_leaves(0, capacity, leaves.data());
    restored.set_order(saved.order());
    restored.set_max_priority(saved.max_priority());
    for (int round = 0; round < 10; ++round) {
      const std::vector<std::uint64_t> changed = random_slots(9, 200, random);
      const std::vector<float> values = random_priorities(9, random);
      for (Priorities* rows : {&saved, &restored}) {
        rows->update(changed.data(), values.data(), 9);
        rows->push(200 + static_cast<std::size_t>(round), 1, nullptr);
        rows->prepare();
      }
      CHECK(restored.total() == saved.total());
      CHECK(restored.max_priority() == saved.max_priority());
      for (std::size_t slot = 0; slot < capacity; ++slot) {
        CHECK(restored.leaf(slot) == saved.leaf(slot));
        CHECK(restored.priority(slot) == saved.priority(slot));
      }
    }
  }
}

void all_instruction_sets_agree() {
  const sharpwave::Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  for (const PriorityKind kind : {PriorityKind::proportional, PriorityKind::rank}) {
    std::vector<std::uint64_t> expected_slots;
    std::vector<float> expected_weights;
    for (int table = 0; table < count; ++table) {
      SplitMix random(10);
      Priorities rows(4096, kind, 0.6, tables[table]->tree);
      const std::vector<float> start = random_priorities(4096, random);
      rows.push(0, 4096, start.data());
      rows.prepare();
      std::vector<double> targets(999);
      for (double& target : targets) {
        target = random.uniform() * rows.total();
      }
      std::vector<std::uint64_t> slots(targets.size());
      std::vector<float> weights(targets.size());
      rows.find(targets.data(), targets.size(), slots.data());
      rows.weights(slots.data(), slots.size(), 0.4, false, weights.data());
      if (table == 0) {
        expected_slots = slots;
        expected_weights = weights;
      }
      CHECK(slots == expected_slots);
      CHECK(weights == expected_weights);
    }
  }
}

}  // namespace

int main() {
  refuses_an_alpha_out_of_range();
  power_is_accurate();
  leaves_are_priorities_to_the_alpha();
  an_alpha_of_one_keeps_priorities_and_of_zero_makes_them_equal();
  new_rows_get_the_highest_priority_seen();
  extreme_priorities_stay_drawable_and_finite();
  removed_rows_and_rows_of_zero_are_never_drawn();
  weights_follow_the_paper();
  weights_are_at_most_one_with_zeros_present();
  ranks_are_exact_after_prepare();
  small_buffers_have_exact_ranks_at_every_change();
  between_sorts_a_row_takes_its_rank_in_the_last_order();
  frequencies_follow_the_priorities();
  saved_rows_continue_bit_for_bit();
  all_instruction_sets_agree();
  return 0;
}
