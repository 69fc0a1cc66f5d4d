#include "core/learn/policy_gradient.hpp"

#include <algorithm>
#include <numeric>

#include "core/isa/kernels.hpp"
#include "core/learn/blocks.hpp"
#include "core/learn/columns.hpp"

namespace sharpwave {
namespace {

constexpr std::size_t kChunk = 128;  // rows that pass through a network at once
constexpr std::size_t kMostLanes = 16;
static_assert(kChunk % kLanes == 0);

}  // namespace

void PolicyMetrics::add(const PolicyMetrics& other, double share) {
  policy_loss += share * other.policy_loss;
  value_loss += share * other.value_loss;
  entropy += share * other.entropy;
  approx_kl += share * other.approx_kl;
  clip_fraction += share * other.clip_fraction;
  loss += share * other.loss;
  grad_norm += share * other.grad_norm;
}

PolicyMetrics PolicyGradient::compute(const PolicyRollout& rollout, const std::int64_t* rows,
                                      std::size_t n, const PolicyLoss& loss, Team& team,
                                      bool are_as_before) {
  if (are_as_before) {
    minibatch_.gather_again(rollout, rows);
  } else {
    minibatch_.gather(policy_, rollout, rows, n);
  }
  if (loss.normalize) minibatch_.normalize_advantages();
  if (loss.value_norm != nullptr) minibatch_.normalize_values(loss.value_norm);
  split(n, minibatch_.n_critic_rows());
  // Actor and critic have nothing in common but the observations.
  team.run(2 * n_lanes_, [&](std::size_t task) {
    Lane& lane = lanes_[task / 2];
    float* into = task < 2 ? gradient_ : lane.gradient.data();
    if (task % 2 == 0) {
      improve_actor(loss, into, &lane);
    } else {
      improve_critic(loss, into, &lane);
    }
  });
  add_lanes(team);

  PolicyMetrics metrics;
  for (std::size_t i = 0; i < n_lanes_; ++i) {
    const Lane& lane = lanes_[i];
    metrics.policy_loss -= lane.sums.gain;
    metrics.approx_kl += lane.sums.kl;
    metrics.clip_fraction += lane.sums.clipped;
    metrics.entropy += lane.entropy;
    metrics.value_loss += 0.5 * lane.squares;
  }
  metrics.loss = metrics.policy_loss + static_cast<double>(loss.vf_coef) * metrics.value_loss -
                 static_cast<double>(loss.ent_coef) * metrics.entropy;
  return metrics;
}

void PolicyGradient::evaluate(const PolicyRollout& rollout, float* log_probs, float* entropies,
                              float* values) {
  split(1, 1);
  Lane& lane = lanes_.front();
  std::vector<std::int64_t> rows(kChunk);
  for (std::size_t first = 0; first < rollout.n_rows; first += kChunk) {
    const std::size_t n = std::min(kChunk, rollout.n_rows - first);
    std::iota(rows.begin(), rows.end(), static_cast<std::int64_t>(first));
    minibatch_.gather(policy_, rollout, rows.data(), n);
    const float* obs = minibatch_.obs(0);
    const Matrix& output =
        policy_.actor().forward(parameters_ + policy_.actor_start(), obs, n, &lane.actor);
    policy_.head().forward(minibatch_.head_rows(0, n), output.data(), parameters_, &lane.head);
    std::copy_n(lane.head.log_prob.data(), n, log_probs + first);
    std::copy_n(lane.head.entropy.data(), n, entropies + first);
    const std::size_t n_inputs = minibatch_.n_critic_rows();
    const Matrix& value = policy_.critic().forward(
        parameters_ + policy_.critic_start(), minibatch_.critic_input(0), n_inputs, &lane.critic);
    if (!minibatch_.has_joint()) {
      std::copy_n(value.data(), n, values + first);
      continue;
    }
    const std::size_t* starts = minibatch_.sharing_starts();
    for (std::size_t i = 0; i < n_inputs; ++i) {
      for (std::size_t k = starts[i]; k < starts[i + 1]; ++k) {
        values[first + minibatch_.sharing()[k]] = value.data()[i];
      }
    }
  }
}

void PolicyGradient::split(std::size_t n, std::size_t n_critic_rows) {
  const auto rows_of_lane = [](std::size_t size) {
    const std::size_t chunks = (size + kChunk - 1) / kChunk;
    return (chunks + kMostLanes - 1) / kMostLanes * kChunk;
  };
  const std::size_t rows = rows_of_lane(n), critic_rows = rows_of_lane(n_critic_rows);
  n_lanes_ = std::max((n + rows - 1) / rows, (n_critic_rows + critic_rows - 1) / critic_rows);
  if (lanes_.size() < n_lanes_) lanes_.resize(n_lanes_);
  for (std::size_t i = 0; i < n_lanes_; ++i) {
    lanes_[i].first = std::min(i * rows, n);
    lanes_[i].last = std::min((i + 1) * rows, n);
    lanes_[i].critic_first = std::min(i * critic_rows, n_critic_rows);
    lanes_[i].critic_last = std::min((i + 1) * critic_rows, n_critic_rows);
    if (i > 0) lanes_[i].gradient.resize(policy_.n_parameters());
  }
}

void PolicyGradient::improve_actor(const PolicyLoss& loss, float* gradient, Lane* lane) const {
  const PolicyKernels& policy = kernels().policy;
  const Mlp& actor = policy_.actor();
  const Head& head = policy_.head();
  const std::size_t start = policy_.actor_start();
  std::fill(gradient, gradient + policy_.critic_start(), 0.0f);
  lane->sums = {};
  lane->entropy = 0.0;
  for (std::size_t first = lane->first; first < lane->last; first += kChunk) {
    const std::size_t n = std::min(kChunk, lane->last - first), lanes = whole_lanes(n);
    const HeadRows rows = minibatch_.head_rows(first, n);
    const float* obs = minibatch_.obs(first);
    const float* advantages = minibatch_.advantages() + first;
    const float* shares = minibatch_.shares() + first;
    const Matrix& output = actor.forward(parameters_ + start, obs, n, &lane->actor);
    head.forward(rows, output.data(), parameters_, &lane->head);

    lane->slopes.reshape(2, lanes);
    float* w = lane->slopes.row(0);
    float* c = lane->slopes.row(1);
    const float* log_probs = lane->head.log_prob.data();
    if (loss.is_clipped) {
      const PolicySums sums = policy.clipped_surrogate(log_probs, minibatch_.log_probs() + first,
                                                       advantages, shares, loss.clip, w, lanes);
      lane->sums.gain += sums.gain;
      lane->sums.kl += sums.kl;
      lane->sums.clipped += sums.clipped;
    } else {
      lane->sums.gain += policy.policy_gradient(log_probs, advantages, shares, w, lanes);
    }
    lane->entropy += policy.dot(lane->head.entropy.data(), shares, lanes);
    for (std::size_t i = 0; i < lanes; ++i) c[i] = loss.ent_coef * shares[i];

    lane->output_grad.reshape(n, head.n_outputs());
    head.backward(rows, {w, c}, parameters_, lane->output_grad.data(), gradient, &lane->head);
    actor.backward(parameters_ + start, obs, n, lane->output_grad.data(), gradient + start, nullptr,
                   &lane->actor);
  }
}

void PolicyGradient::improve_critic(const PolicyLoss& loss, float* gradient, Lane* lane) const {
  const Mlp& critic = policy_.critic();
  const std::size_t start = policy_.critic_start();
  std::fill(gradient + start, gradient + policy_.n_parameters(), 0.0f);
  lane->squares = 0.0;
  for (std::size_t first = lane->critic_first; first < lane->critic_last; first += kChunk) {
    const std::size_t n = std::min(kChunk, lane->critic_last - first);
    const float* inputs = minibatch_.critic_input(first);
    const Matrix& output = critic.forward(parameters_ + start, inputs, n, &lane->critic);
    lane->squares += minibatch_.has_joint() ? measure_shared_values(loss, first, n, output, lane)
                                            : measure_values(loss, first, n, output, lane);
    critic.backward(parameters_ + start, inputs, n, lane->value_grad.data(), gradient + start,
                    nullptr, &lane->critic);
  }
}

// The squared errors of the values of n rows; their gradient goes to `value_grad` of the lane.
double PolicyGradient::measure_values(const PolicyLoss& loss, std::size_t first, std::size_t n,
                                      const Matrix& output, Lane* lane) const {
  const std::size_t lanes = whole_lanes(n);
  lane->value_grad.reshape(1, lanes);
  float* values = lane->value_grad.data();
  std::copy(output.data(), output.data() + n, values);
  std::fill(values + n, values + lanes, 0.0f);
  const float* old_values = loss.value_clip ? minibatch_.values() + first : nullptr;
  return kernels().policy.squared_errors(
      values, minibatch_.returns() + first, old_values, loss.value_clip.value_or(0.0f),
      minibatch_.shares() + first, loss.vf_coef, loss.huber_delta, lanes);
}

// The same of n inputs, each of which has the rows that share it.
double PolicyGradient::measure_shared_values(const PolicyLoss& loss, std::size_t first,
                                             std::size_t n, const Matrix& output,
                                             Lane* lane) const {
  const std::size_t* starts = minibatch_.sharing_starts() + first;
  const std::size_t* rows = minibatch_.sharing() + starts[0];
  const std::size_t n_rows = starts[n] - starts[0], lanes = whole_lanes(n_rows);
  lane->shared.reshape(4, lanes);
  float *values = lane->shared.row(0), *returns = lane->shared.row(1);
  float *old_values = lane->shared.row(2), *shares = lane->shared.row(3);
  std::fill(lane->shared.data(), lane->shared.data() + lane->shared.size(), 0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = starts[i] - starts[0]; k < starts[i + 1] - starts[0]; ++k) {
      values[k] = output.data()[i];
      returns[k] = minibatch_.returns()[rows[k]];
      old_values[k] = minibatch_.values()[rows[k]];
      shares[k] = minibatch_.shares()[rows[k]];
    }
  }
  const double squares = kernels().policy.squared_errors(
      values, returns, loss.value_clip ? old_values : nullptr, loss.value_clip.value_or(0.0f),
      shares, loss.vf_coef, loss.huber_delta, lanes);
  lane->value_grad.reshape(1, n);
  for (std::size_t i = 0; i < n; ++i) {
    float sum = 0.0f;
    for (std::size_t k = starts[i] - starts[0]; k < starts[i + 1] - starts[0]; ++k)
      sum += values[k];
    lane->value_grad.data()[i] = sum;
  }
  return squares;
}

void PolicyGradient::add_lanes(Team& team) {
  if (n_lanes_ == 1) return;
  for_blocks(policy_.n_parameters(), team, [&](std::size_t, std::size_t first, std::size_t n) {
    for (std::size_t i = 1; i < n_lanes_; ++i) {
      kernels().learn.add(gradient_ + first, lanes_[i].gradient.data() + first, n);
    }
  });
}

}  // namespace sharpwave
