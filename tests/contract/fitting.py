"""A learner without spaces, environments or episodes: a plane fitted by gradient descent."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sharpwave.agents.agent import Agent
from sharpwave.config.options import RunConfig, resolve_config
from sharpwave.loops.loop import Loop, Run
from sharpwave.pages.headline import Headline


@dataclass(frozen=True, kw_only=True)
class FitConfig(RunConfig):
    """Options of `Fit`."""

    seed: int | None = 0
    """Seed of the points and of the minibatches."""
    total_timesteps: int = 40
    """Updates of `train()` when it is given none."""
    learning_rate: float = 0.1
    """Step size."""
    n_points: int = 64
    """Points to fit."""

    def check(self) -> None:
        """Check the values."""
        super().check()
        self.require_positive("learning_rate", "n_points")


class FitLearner:
    """Points of a plane, and weights that gradient descent moves."""

    def __init__(self, config: FitConfig) -> None:
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self.x = self.rng.normal(size=(config.n_points, 3))
        self.y = self.x @ [1.0, -2.0, 0.5] + 0.1 * self.rng.normal(size=config.n_points)
        self.weights = np.zeros(3)

    def update(self, rows: Any) -> dict[str, float]:
        """One step of gradient descent on a minibatch."""
        errors = self.x[rows] @ self.weights - self.y[rows]
        gradient = self.x[rows].T @ errors / len(rows)
        self.weights = self.weights - self.config.learning_rate * gradient
        return {"loss": float(errors @ errors / 2), "grad_norm": float(np.linalg.norm(gradient))}

    def state_dict(self) -> dict[str, Any]:
        """Weights, and where the random numbers are."""
        return {"weights": self.weights, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.weights = state["weights"]
        self.rng.bit_generator.state = state["rng"]


class FitLoop(Loop):
    """Draws minibatches, and counts updates."""

    unit = "updates"
    headline = Headline("mean_squared_error", lower_is_better=True)
    learner: FitLearner

    @property
    def subject(self) -> str:
        """The size of the data."""
        return f"{self.config.n_points:,} points of a plane"

    def iterate(self, run: Run) -> dict[str, float]:
        """One update."""
        learner = self.learner
        metrics = learner.update(learner.rng.integers(len(learner.y), size=8))
        self.timesteps += 1
        return metrics

    def progress_metrics(self) -> dict[str, float]:
        """The error on all points."""
        learner = self.learner
        return {
            "mean_squared_error": float(np.mean((learner.x @ learner.weights - learner.y) ** 2))
        }

    def few_threads(self) -> Any:
        """One is enough."""
        return contextlib.nullcontext()


class Fit(Agent):
    """Linear regression by stochastic gradient descent."""

    name = "fit"
    Config: ClassVar[type[FitConfig]] = FitConfig
    config: FitConfig

    def __init__(
        self,
        *,
        config: FitConfig | dict[str, Any] | None = None,
        callbacks: Any = None,
        logger: Any = None,
        **overrides: Any,
    ) -> None:
        if overrides.get("seed", 0) is None:
            del overrides["seed"]
        super().__init__(resolve_config(self.Config, config, overrides), callbacks, logger)
        self.build()

    def build(self) -> None:
        """Make learner and loop."""
        self.learner = FitLearner(self.config)
        self.loop = FitLoop(self.learner, self.config)
