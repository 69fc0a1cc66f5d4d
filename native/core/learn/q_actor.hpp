// A Q-network at play: the best actions for observations, or with some chance random ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/learn/q_network.hpp"
#include "core/rng.hpp"

namespace sharpwave {

struct Exploration {
  double epsilon;  // chance of a random action
  Philox random;   // a function of the row
};

// Memory that is kept between calls, so each thread has one of its own.
class QActor {
 public:
  explicit QActor(const QNetwork& network) : network_(network) {}

  // Writes actions [n, n_choices], each from 0 on. allowed [n, n_options] may be null.
  void act(const float* parameters, const float* obs, std::size_t n, const std::uint8_t* allowed,
           const std::optional<Exploration>& exploration, std::int64_t* actions);

 private:
  void act_best(const float* parameters, const float* obs, std::size_t n,
                const std::uint8_t* allowed, std::int64_t* actions);
  // Random actions for one row.
  void draw(const Philox& random, std::size_t row, const std::uint8_t* allowed,
            std::int64_t* actions) const;

  const QNetwork& network_;
  QMemory memory_;
  std::vector<std::size_t> options_;
};

}  // namespace sharpwave
