// What a policy looks at in the environments that it plays.
#pragma once

#include <cstddef>

#include "core/learn/columns.hpp"

namespace sharpwave {

enum class CriticView {
  own,        // what the actor looks at
  joint,      // the observations of all agents side by side, one value for all of them
  own_first,  // the same for each agent, with its own observation before the others
};

struct PolicyView {
  std::size_t obs_size;
  std::size_t n_agents = 1;
  bool has_agent_id =
      false;  // the actor is told which agent it is, one-hot, before its observation
  CriticView critic = CriticView::own;

  std::size_t obs_row() const { return n_agents * obs_size; }
  std::size_t n_inputs() const { return obs_size + (has_agent_id ? n_agents : 0); }
  std::size_t n_critic_inputs() const { return critic == CriticView::own ? n_inputs() : obs_row(); }

  // Inputs [n_inputs, lanes] of the actor in rows `first` to `first` + n - 1 of obs [., obs_size],
  // where row 0 is that of an environment's first agent.
  void actor_columns(const float* obs, std::size_t first, std::size_t n, Matrix* columns) const {
    if (!has_agent_id) return to_columns(obs + first * obs_size, obs_size, n, columns);
    const std::size_t lanes = whole_lanes(n);
    columns->reshape(n_inputs(), lanes);
    std::fill(columns->data(), columns->data() + columns->size(), 0.0f);
    for (std::size_t i = 0; i < n; ++i) columns->row((first + i) % n_agents)[i] = 1.0f;
    for (std::size_t j = 0; j < obs_size; ++j) {
      float* column = columns->row(n_agents + j);
      for (std::size_t i = 0; i < n; ++i) column[i] = obs[(first + i) * obs_size + j];
    }
  }

  // Inputs [obs_row, lanes] of a critic that has each agent's own observation first.
  void own_first_columns(const float* obs, std::size_t first, std::size_t n,
                         Matrix* columns) const {
    columns->reshape(obs_row(), whole_lanes(n));
    std::fill(columns->data(), columns->data() + columns->size(), 0.0f);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t agent = (first + i) % n_agents;
      const float* row = obs + (first + i - agent) * obs_size;
      for (std::size_t place = 0; place < n_agents; ++place) {
        const std::size_t other = place == 0 ? agent : place - (place <= agent ? 1 : 0);
        for (std::size_t j = 0; j < obs_size; ++j) {
          columns->row(place * obs_size + j)[i] = row[other * obs_size + j];
        }
      }
    }
  }
};

}  // namespace sharpwave
