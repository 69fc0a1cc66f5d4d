#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/sum_tree.hpp"
#include "tests/check.hpp"
#include "tests/chi_square.hpp"
#include "tests/splitmix.hpp"

namespace {

using sharpwave::SumTree;

constexpr std::size_t kCapacities[] = {1, 15, 16, 17, 255, 257, 4096, 100003};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Values from 1e-12 to 1e12, a tenth of them 0.
std::vector<float> mixed_values(std::size_t n, SplitMix& random) {
  std::vector<float> values(n);
  for (float& value : values) {
    const double exponent = random.uniform() * 24.0 - 12.0;
    value = random.below(10) == 0 ? 0.0f : static_cast<float>(std::pow(10.0, exponent));
  }
  return values;
}

std::vector<float> scaled_values(std::size_t n, double sum, SplitMix& random) {
  std::vector<float> values(n);
  for (float& value : values) {
    value = static_cast<float>((0.1 + random.uniform()) * sum / static_cast<double>(n));
  }
  return values;
}

void check_same(const SumTree& a, const SumTree& b) {
  for (std::size_t slot = 0; slot < a.capacity(); ++slot) {
    CHECK(a.get(slot) == b.get(slot));
  }
  CHECK(a.total() == b.total());
  CHECK(a.min_positive() == b.min_positive());
}

void check_against(const SumTree& tree, const std::vector<float>& values) {
  double sum = 0.0;
  float least = kInfinity;
  for (std::size_t slot = 0; slot < values.size(); ++slot) {
    CHECK(tree.get(slot) == values[slot]);
    sum += static_cast<double>(values[slot]);
    least = values[slot] > 0.0f && values[slot] < least ? values[slot] : least;
  }
  CHECK(std::fabs(tree.total() - sum) <= 1e-6 * sum);
  CHECK(tree.min_positive() == least);
}

void refuses_capacities_out_of_range() {
  CHECK_THROWS(std::invalid_argument, SumTree(0));
  CHECK_THROWS(std::invalid_argument, SumTree((std::size_t{1} << 32) + 1));
}

void is_empty_at_the_start_and_after_clear() {
  for (const std::size_t capacity : kCapacities) {
    SumTree tree(capacity);
    CHECK(tree.capacity() == capacity);
    check_against(tree, std::vector<float>(capacity));
    tree.set_range(0, capacity, 2.5f);
    tree.clear();
    check_against(tree, std::vector<float>(capacity));
    tree.set(capacity - 1, 3.0f);
    CHECK(tree.total() == 3.0);
    CHECK(tree.min_positive() == 3.0f);
  }
}

void needs_little_memory() {
  CHECK(static_cast<double>(SumTree(1000000).bytes()) <= 4.6 * 1000000);
}

void batch_set_equals_sequential_sets() {
  SplitMix random(1);
  for (const std::size_t capacity : kCapacities) {
    SumTree batch(capacity);
    SumTree one_by_one(capacity);
    std::vector<float> values(capacity);
    for (const std::size_t n : {1, 7, 256, 3000}) {
      std::vector<std::uint64_t> slots(n);
      for (std::uint64_t& slot : slots) {
        slot = random.below(capacity);
      }
      const std::vector<float> changes = mixed_values(n, random);
      batch.set_many(slots.data(), changes.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        one_by_one.set(slots[i], changes[i]);
        values[slots[i]] = changes[i];
      }
      check_same(batch, one_by_one);
      check_against(batch, values);
    }
  }
}

void range_set_equals_sequential_sets() {
  SplitMix random(2);
  for (const std::size_t capacity : kCapacities) {
    SumTree range(capacity);
    SumTree one_by_one(capacity);
    for (int round = 0; round < 10; ++round) {
      const std::size_t first = random.below(capacity);
      const std::size_t n = random.below(capacity - first + 1);
      const std::vector<float> values = mixed_values(n, random);
      range.set_range(first, n, values.data());
      for (std::size_t i = 0; i < n; ++i) {
        one_by_one.set(first + i, values[i]);
      }
      const std::size_t at = random.below(capacity);
      range.set_range(at, 1, 0.25f);
      one_by_one.set(at, 0.25f);
      check_same(range, one_by_one);
    }
    range.set_range(0, capacity, 7.0f);
    check_against(range, std::vector<float>(capacity, 7.0f));
  }
}

void minimum_ignores_zeros() {
  SumTree tree(300);
  CHECK(tree.min_positive() == kInfinity);
  tree.set(5, 4.0f);
  tree.set(299, 0.5f);
  CHECK(tree.min_positive() == 0.5f);
  tree.set(299, 0.0f);
  CHECK(tree.min_positive() == 4.0f);
  tree.set(5, 0.0f);
  CHECK(tree.min_positive() == kInfinity);
  CHECK(tree.total() == 0.0);
}

// Every target falls into the leaf that a scan of the cumulative sums gives, but for those within
// rounding of a border.
void find_agrees_with_a_linear_scan() {
  SplitMix random(3);
  for (const std::size_t capacity : kCapacities) {
    for (const double scale : {1e-12, 1.0, 1e30, 0.0}) {
      std::vector<float> values =
          scale > 0.0 ? scaled_values(capacity, scale, random) : mixed_values(capacity, random);
      values[random.below(capacity)] = static_cast<float>(scale > 0.0 ? scale : 1.0);
      SumTree tree(capacity);
      tree.set_range(0, capacity, values.data());
      std::vector<double> ends(capacity);
      double sum = 0.0;
      for (std::size_t slot = 0; slot < capacity; ++slot) {
        ends[slot] = sum += static_cast<double>(values[slot]);
      }
      const std::size_t n = 2000;
      std::vector<double> targets(n);
      std::vector<std::uint64_t> slots(n);
      for (double& target : targets) {
        target = random.uniform() * tree.total();
      }
      targets[0] = 0.0;
      targets[1] = std::nextafter(tree.total(), 0.0);
      tree.find(targets.data(), n, slots.data());
      const double rounding = 1e-6 * sum;
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(slots[i] < capacity);
        CHECK(values[slots[i]] > 0.0f);
        const double start = ends[slots[i]] - static_cast<double>(values[slots[i]]);
        CHECK(targets[i] >= start - rounding);
        CHECK(targets[i] <= ends[slots[i]] + rounding);
      }
    }
  }
}

// Powers of two sum up exactly, so that every border is exact as well.
void find_is_exact_where_sums_are() {
  for (const std::size_t capacity : kCapacities) {
    SumTree tree(capacity);
    std::vector<double> targets;
    std::vector<std::uint64_t> expected;
    double start = 0.0;
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      const float value = slot % 3 == 1 ? 0.0f : slot % 3 == 0 ? 1.0f : 2.0f;
      tree.set(slot, value);
      if (value > 0.0f) {
        targets.push_back(start);
        targets.push_back(start + 0.75 * static_cast<double>(value));
        expected.insert(expected.end(), 2, slot);
      }
      start += static_cast<double>(value);
    }
    std::vector<std::uint64_t> slots(targets.size());
    tree.find(targets.data(), targets.size(), slots.data());
    CHECK(slots == expected);
  }
}

void targets_out_of_range_give_a_positive_leaf() {
  SumTree tree(1000);
  tree.set(3, 1e-30f);
  tree.set(400, 1e20f);
  tree.set(998, 1.0f);
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double targets[] = {-1.0, -infinity, tree.total(), 1e300, infinity, nan};
  std::uint64_t slots[6];
  tree.find(targets, 6, slots);
  CHECK(slots[0] == 3 && slots[1] == 3);
  CHECK(slots[2] == 998 && slots[3] == 998 && slots[4] == 998);
  CHECK(tree.get(slots[5]) > 0.0f);
  tree.clear();
  tree.find(targets, 6, slots);
  for (const std::uint64_t slot : slots) {
    CHECK(slot < 1000);
  }
}

void check_frequencies(const std::vector<float>& values, std::uint64_t seed) {
  SplitMix random(seed);
  SumTree tree(values.size());
  tree.set_range(0, values.size(), values.data());
  double sum = 0.0;
  for (const float value : values) {
    sum += static_cast<double>(value);
  }
  std::vector<double> probabilities;
  for (const float value : values) {
    probabilities.push_back(static_cast<double>(value) / sum);
  }
  const std::size_t n = 400000;
  std::vector<double> targets(n);
  for (double& target : targets) {
    target = random.uniform() * tree.total();
  }
  std::vector<std::uint64_t> slots(n);
  tree.find(targets.data(), n, slots.data());
  std::vector<std::uint64_t> counts(values.size());
  for (const std::uint64_t slot : slots) {
    CHECK(values[slot] > 0.0f);
    ++counts[slot];
  }
  CHECK(chi_square_excess(counts, probabilities) < 4.5);
}

void frequencies_follow_the_leaves() {
  SplitMix random(4);
  for (const std::size_t capacity : {2, 17, 257, 4096}) {
    for (const double sum : {1e-35, 1e-12, 1.0, 1e30}) {
      check_frequencies(scaled_values(capacity, sum, random), capacity);
    }
    std::vector<float> mixed = mixed_values(capacity, random);
    mixed[capacity / 2] = 1.0f;
    check_frequencies(mixed, capacity);
    std::vector<float> with_zeros = scaled_values(capacity, 1.0, random);
    for (std::size_t i = 1; i < capacity; i += 2) {
      with_zeros[i] = 0.0f;
    }
    check_frequencies(with_zeros, capacity);
  }
}

void a_million_updates_do_not_drift() {
  SplitMix random(5);
  const std::size_t capacity = 4096;
  SumTree tree(capacity);
  std::vector<float> values(capacity);
  for (int round = 0; round < 1000000 / 250; ++round) {
    std::uint64_t slots[250];
    const std::vector<float> changes = mixed_values(250, random);
    for (std::size_t i = 0; i < 250; ++i) {
      slots[i] = random.below(capacity);
      values[slots[i]] = changes[i];
    }
    tree.set_many(slots, changes.data(), 250);
  }
  check_against(tree, values);
  SumTree fresh(capacity);
  fresh.set_range(0, capacity, values.data());
  check_same(tree, fresh);
  for (std::size_t slot = 0; slot + 1 < capacity; ++slot) {
    tree.set(slot, 0.0f);
  }
  tree.set(capacity - 1, 1e-20f);
  CHECK(tree.total() == static_cast<double>(1e-20f));
}

void all_instruction_sets_agree() {
  const sharpwave::Kernels* tables[3];
  const int count = sharpwave::supported_kernels(tables);
  SplitMix random(6);
  for (const std::size_t capacity : kCapacities) {
    const std::vector<float> values = mixed_values(capacity, random);
    const std::size_t n = 3000;
    std::vector<std::uint64_t> changed(n);
    for (std::uint64_t& slot : changed) {
      slot = random.below(capacity);
    }
    const std::vector<float> changes = mixed_values(n, random);
    std::vector<double> shares(n);
    for (double& share : shares) {
      share = random.uniform();
    }
    SumTree reference(capacity, tables[0]->tree);
    std::vector<std::uint64_t> expected(n);
    for (int table = 0; table < count; ++table) {
      SumTree tree(capacity, tables[table]->tree);
      tree.set_range(0, capacity, values.data());
      tree.set_many(changed.data(), changes.data(), n);
      std::vector<double> targets(n);
      for (std::size_t i = 0; i < n; ++i) {
        targets[i] = shares[i] * tree.total();
      }
      std::vector<std::uint64_t> slots(n);
      tree.find(targets.data(), n, slots.data());
      if (table == 0) {
        expected = slots;
        reference.set_range(0, capacity, values.data());
        reference.set_many(changed.data(), changes.data(), n);
      }
      check_same(tree, reference);
      CHECK(slots == expected);
    }
  }
}

}  // namespace

int main() {
  refuses_capacities_out_of_range();
  is_empty_at_the_start_and_after_clear();
  needs_little_memory();
  batch_set_equals_sequential_sets();
  range_set_equals_sequential_sets();
  minimum_ignores_zeros();
  find_agrees_with_a_linear_scan();
  find_is_exact_where_sums_are();
  targets_out_of_range_give_a_positive_leaf();
  frequencies_follow_the_leaves();
  a_million_updates_do_not_drift();
  all_instruction_sets_agree();
  return 0;
}
