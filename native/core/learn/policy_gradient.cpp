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
                                      std::size_t n, const PolicyLoss& loss, Team& team) {
  minibatch_.gather(policy_, rollout, rows, n);
  if (loss.normalize) minibatch_.normalize_advantages();
  split(n);
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
  split(1);
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
    const Matrix& value =
        policy_.critic().forward(parameters_ + policy_.critic_start(), obs, n, &lane.critic);
    std::copy_n(lane.head.log_prob.data(), n, log_probs + first);
    std::copy_n(lane.head.entropy.data(), n, entropies + first);
    std::copy_n(value.data(), n, values + first);
  }
}

void PolicyGradient::split(std::size_t n) {
  const std::size_t chunks = (n + kChunk - 1) / kChunk;
  const std::size_t rows = (chunks + kMostLanes - 1) / kMostLanes * kChunk;
  n_lanes_ = (n + rows - 1) / rows;
  if (lanes_.size() < n_lanes_) lanes_.resize(n_lanes_);
  for (std::size_t i = 0; i < n_lanes_; ++i) {
    lanes_[i].first = i * rows;
    lanes_[i].last = std::min((i + 1) * rows, n);
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
  for (std::size_t first = lane->first; first < lane->last; first += kChunk) {
    const std::size_t n = std::min(kChunk, lane->last - first), lanes = whole_lanes(n);
    const float* obs = minibatch_.obs(first);
    const Matrix& output = critic.forward(parameters_ + start, obs, n, &lane->critic);
    lane->value_grad.reshape(1, lanes);
    float* values = lane->value_grad.data();
    std::copy(output.data(), output.data() + n, values);
    std::fill(values + n, values + lanes, 0.0f);
    const float* old_values = loss.value_clip ? minibatch_.values() + first : nullptr;
    lane->squares += kernels().policy.squared_errors(
        values, minibatch_.returns() + first, old_values, loss.value_clip.value_or(0.0f),
        minibatch_.shares() + first, loss.vf_coef, lanes);
    critic.backward(parameters_ + start, obs, n, values, gradient + start, nullptr, &lane->critic);
  }
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
