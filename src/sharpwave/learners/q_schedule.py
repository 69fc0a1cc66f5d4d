"""Schedules of DQN by environment steps: ε of exploration, and copies to the target network."""

from __future__ import annotations

from typing import Any

from sharpwave.learners.learner import Learner, Metrics

__all__ = ["QSchedule"]


class QSchedule(Learner):
    """Schedules of DQN, for both twins.

    Attributes:
        epsilon: Probability of random actions.
        target_copied_at: Environment steps at the last copy to the target network.
    """

    epsilon: float = 1.0
    target_copied_at: int = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.epsilon = self.config.exploration_initial_eps
        # Its age counts from the start of the run, or of learning if a copy is due at once.
        first = self.steps_lived()
        self.target_copied_at = first if first >= self.config.target_update_freq else 0

    def follow(self, progress_remaining: float) -> None:
        """Set learning rate and ε, which never rises again."""
        super().follow(progress_remaining)
        config = self.config
        start, end = config.exploration_initial_eps, config.exploration_final_eps
        done = min(1.0, (1.0 - progress_remaining) / max(config.exploration_fraction, 1e-9))
        self.epsilon = 0.0 if config.noisy else min(self.epsilon, start + done * (end - start))

    def metrics(self) -> Metrics:
        """Learning rate and ε."""
        return {**super().metrics(), "epsilon": self.epsilon}

    def steps_lived(self) -> int:
        """Environment steps of a run at its next gradient step, by the number of the latter.

        A learner knows of environments only how many of their steps there are to one of its own:
        those of an update, `train_freq` of every environment, to its `gradient_steps`, or what
        `train_ratio` says.
        """
        config, n_learners = self.config, self.ranks.size
        lived: int = config.train_freq * config.n_envs * n_learners
        least: int = min(config.steps_per_batch, config.buffer_size) * n_learners
        waits_for: int = max(config.learning_starts, least)
        if config.train_ratio is not None:
            replayed = self.updates * config.steps_per_batch * n_learners
            return -(-waits_for // lived) * lived + int(replayed / config.train_ratio)
        learned: int = lived if config.gradient_steps == -1 else max(1, config.gradient_steps)
        return (-(-waits_for // lived) + self.updates // learned) * lived

    def copies_target(self) -> bool:
        """Return whether the target network copies all weights before the next gradient step."""
        age = self.steps_lived() - self.target_copied_at
        due: bool = self.config.tau == 1 and age >= self.config.target_update_freq
        return due

    def extra_state(self) -> dict[str, Any]:
        """State of exploration, and age of the target network."""
        return {"epsilon": self.epsilon, "target_age": self.steps_lived() - self.target_copied_at}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Continue from `extra_state`."""
        self.epsilon = float(state["epsilon"])
        self.target_copied_at = self.steps_lived() - int(state["target_age"])
