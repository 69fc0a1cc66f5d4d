// The loss of a policy on a minibatch in plain loops and double, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "activations.hpp"
#include "core/learn/policy_gradient.hpp"

namespace sharpwave {

enum class Kind { choices, bits, normals };

inline std::vector<float> random_floats(std::size_t n, unsigned seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(n);
  for (float& number : numbers) number = scale * normal(random);
  return numbers;
}

// A policy and a rollout that it did not quite make.
struct PolicyCase {
  Kind kind;
  std::vector<std::size_t> options;  // of choices; of bits and normals as many ones
  std::size_t n_rows;
  std::vector<std::size_t> hidden;
  Activation activation;
  Policy policy;
  std::vector<float> parameters, gradient;
  std::vector<float> obs, moves, advantages, returns, log_probs, values, weights;
  std::vector<std::int64_t> choices;
  std::vector<std::uint8_t> masks;
  std::vector<float> joint;
  std::vector<std::int64_t> joint_rows;
  PolicyRollout rollout;

  static constexpr std::size_t kInputs = 3;
  static constexpr std::size_t kJointInputs = 5;

  // With `n_sharing` the critic has inputs of its own, each of which so many rows share.
  PolicyCase(Kind kind_, std::vector<std::size_t> options_, std::size_t n_rows_, bool is_masked,
             std::vector<std::size_t> hidden_ = {9, 17}, Activation activation_ = Activation::tanh,
             std::size_t n_sharing = 0)
      : kind(kind_),
        options(std::move(options_)),
        n_rows(n_rows_),
        hidden(std::move(hidden_)),
        activation(activation_),
        policy(kInputs, n_sharing == 0 ? kInputs : kJointInputs, hidden, hidden, activation,
               kind == Kind::choices ? make_choices(options)
               : kind == Kind::bits  ? make_bits(options.size())
                                     : make_normals(options.size())),
        parameters(random_floats(policy.n_parameters(), 1, 0.4f)),
        gradient(policy.n_parameters(), NAN),
        obs(random_floats(n_rows * kInputs, 2)),
        moves(random_floats(n_rows * options.size(), 3)),
        advantages(random_floats(n_rows, 4, 2.0f)),
        returns(random_floats(n_rows, 5)),
        log_probs(n_rows),
        values(random_floats(n_rows, 6)),
        choices(n_rows * options.size()) {
    const std::size_t k = options.size(), n_outputs = policy.head().n_outputs();
    if (is_masked) masks.assign(n_rows * n_outputs, 1);
    std::mt19937 random(7);
    for (std::size_t row = 0; row < n_rows; ++row) {
      for (std::size_t i = 0, first = 0; i < k; first += options[i++]) {
        const std::size_t limit = kind == Kind::bits ? 2 : options[i];
        std::int64_t& action = choices[row * k + i];
        action = static_cast<std::int64_t>(random() % limit);
        if (!is_masked) continue;
        const std::size_t forbidden = random() % options[i];
        if (kind == Kind::bits) {
          masks[row * n_outputs + i] = static_cast<std::uint8_t>(random() % 2);
          if (masks[row * n_outputs + i] == 0) action = 0;
        } else if (forbidden != static_cast<std::size_t>(action)) {
          masks[row * n_outputs + first + forbidden] = 0;
        }
      }
    }
    rollout = {.n_rows = n_rows,
               .obs = obs.data(),
               .choices = kind == Kind::normals ? nullptr : choices.data(),
               .moves = kind == Kind::normals ? moves.data() : nullptr,
               .advantages = advantages.data(),
               .returns = returns.data(),
               .log_probs = log_probs.data(),
               .values = values.data(),
               .masks = is_masked ? masks.data() : nullptr};
    if (n_sharing > 0) share_inputs(n_sharing);
    // Near what the policy says, so that some ratios are clipped and some are not.
    const std::vector<double> exact(parameters.begin(), parameters.end());
    const std::vector<float> noise = random_floats(n_rows, 8, 0.3f);
    for (std::size_t row = 0; row < n_rows; ++row) {
      log_probs[row] = static_cast<float>(head(exact, row).log_prob) + noise[row];
    }
  }
  PolicyCase(const PolicyCase&) = delete;

  void share_inputs(std::size_t n_sharing) {
    const std::size_t n_joint = (n_rows + n_sharing - 1) / n_sharing;
    joint = random_floats(n_joint * kJointInputs, 9);
    for (std::size_t row = 0; row < n_rows; ++row) {
      joint_rows.push_back(static_cast<std::int64_t>(row * 7 % n_joint));
    }
    rollout.joint = joint.data();
    rollout.joint_rows = joint_rows.data();
    rollout.n_joint = n_joint;
  }

  struct HeadValues {
    double log_prob = 0, entropy = 0;
  };

  double value(const std::vector<double>& p, std::size_t row) const {
    const std::size_t start = policy.critic_start();
    if (joint.empty()) return network(p, start, 1, obs.data() + row * kInputs, kInputs)[0];
    const auto input = static_cast<std::size_t>(joint_rows[row]);
    return network(p, start, 1, joint.data() + input * kJointInputs, kJointInputs)[0];
  }

  std::vector<double> network(const std::vector<double>& parameters_, std::size_t start,
                              std::size_t n_out, const float* inputs, std::size_t n_inputs) const {
    std::vector<double> x(inputs, inputs + n_inputs);
    std::vector<std::size_t> sizes = hidden;
    sizes.push_back(n_out);
    for (std::size_t layer = 0; layer < sizes.size(); ++layer) {
      std::vector<double> y(sizes[layer]);
      for (std::size_t o = 0; o < y.size(); ++o) {
        y[o] = parameters_[start + x.size() * y.size() + o];
        for (std::size_t i = 0; i < x.size(); ++i) {
          y[o] += parameters_[start + o * x.size() + i] * x[i];
        }
        if (layer + 1 < sizes.size()) {
          y[o] = activated(activation, y[o]);
        }
      }
      start += (x.size() + 1) * y.size();
      x = y;
    }
    return x;
  }

  HeadValues head(const std::vector<double>& p, std::size_t row) const {
    const std::size_t n_outputs = policy.head().n_outputs(), k = options.size();
    std::vector<double> z =
        network(p, policy.actor_start(), n_outputs, obs.data() + row * kInputs, kInputs);
    for (std::size_t j = 0; !masks.empty() && j < n_outputs; ++j) {
      if (masks[row * n_outputs + j] == 0) z[j] = -1e8;
    }
    HeadValues found;
    for (std::size_t i = 0, first = 0; i < k; first += options[i++]) {
      const auto action = static_cast<std::size_t>(choices[row * k + i]);
      if (kind == Kind::normals) {
        const double e = (moves[row * k + i] - z[i]) / std::exp(p[i]);
        found.log_prob += -0.5 * e * e - p[i] - 0.5 * std::log(2 * M_PI);
        found.entropy += p[i] + 0.5 + 0.5 * std::log(2 * M_PI);
      } else if (kind == Kind::bits) {
        const double one = 1.0 / (1.0 + std::exp(-z[i]));
        found.log_prob += std::log(action == 1 ? one : 1.0 - one);
        if (one > 0.0 && one < 1.0) {
          found.entropy -= one * std::log(one) + (1.0 - one) * std::log(1.0 - one);
        }
      } else {
        double highest = z[first], sum = 0.0;
        for (std::size_t j = 0; j < options[i]; ++j) highest = std::max(highest, z[first + j]);
        for (std::size_t j = 0; j < options[i]; ++j) sum += std::exp(z[first + j] - highest);
        for (std::size_t j = 0; j < options[i]; ++j) {
          const double log_p = z[first + j] - highest - std::log(sum);
          if (j == action) found.log_prob += log_p;
          if (std::exp(log_p) > 0.0) found.entropy -= std::exp(log_p) * log_p;
        }
      }
    }
    return found;
  }

  PolicyMetrics measure(const std::vector<double>& p, const std::vector<std::int64_t>& rows,
                        const PolicyLoss& loss) const {
    const auto weight = [&](std::int64_t row) { return weights.empty() ? 1.0 : weights[row]; };
    double total = 0.0, mean = 0.0, squares = 0.0;
    for (const std::int64_t row : rows) {
      total += weight(row);
      mean += weight(row) * advantages[row];
    }
    mean /= total;
    for (const std::int64_t row : rows) {
      squares += weight(row) * (advantages[row] - mean) * (advantages[row] - mean);
    }
    const double deviation = std::sqrt(squares / (total - 1.0)) + 1e-8;
    PolicyMetrics metrics;
    for (const std::int64_t row : rows) {
      const double share = weight(row) / total;
      const HeadValues found = head(p, static_cast<std::size_t>(row));
      const double advantage =
          loss.normalize ? (advantages[row] - mean) / deviation : advantages[row];
      const double clip = loss.clip;
      if (loss.is_clipped) {
        const double log_ratio = found.log_prob - log_probs[row], ratio = std::exp(log_ratio);
        const double clipped = std::clamp(ratio, 1.0 - clip, 1.0 + clip);
        metrics.policy_loss -= share * std::min(advantage * ratio, advantage * clipped);
        metrics.approx_kl += share * (std::expm1(log_ratio) - log_ratio);
        metrics.clip_fraction += share * (ratio != clipped);
      } else {
        metrics.policy_loss -= share * advantage * found.log_prob;
      }
      const double v = value(p, static_cast<std::size_t>(row));
      const ValueScale scale = loss.value_norm == nullptr ? ValueScale{} : loss.value_norm->scale();
      const double target = (returns[row] - scale.mean) / scale.deviation;
      const double old = (values[row] - scale.mean) / scale.deviation;
      const auto squared = [&](double e) {
        const double delta = loss.huber_delta;
        return std::abs(e) <= delta ? e * e : delta * (2.0 * std::abs(e) - delta);
      };
      double square = squared(v - target);
      if (loss.value_clip) {
        const double range = *loss.value_clip;
        square = std::max(square, squared(old + std::clamp(v - old, -range, range) - target));
      }
      metrics.value_loss += share * 0.5 * square;
      metrics.entropy += share * found.entropy;
    }
    metrics.loss =
        metrics.policy_loss + loss.vf_coef * metrics.value_loss - loss.ent_coef * metrics.entropy;
    return metrics;
  }
};

}  // namespace sharpwave
