"""Sweep options of PPO with Ray Tune: `pip install "ray[tune]"`, then run this file."""

import argparse
from typing import Any

from ray import tune

import sharpwave as sw


def train(options: dict[str, Any], steps: int, chunks: int) -> None:
    """Train one agent, and report its return on the way, so that a scheduler may end it early."""
    agent = sw.PPO("CartPole-v1", n_envs=8, seed=0, **options)
    for _ in range(chunks):
        agent.train(steps // chunks)
        tune.report({"mean_return": agent.evaluate(10).mean})
    agent.close()


def main() -> None:
    """Sweep, and print the best options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8, help="options to try (8)")
    parser.add_argument(
        "--steps", type=int, default=40_000, help="environment steps of each (40000)"
    )
    parsed = parser.parse_args()
    tuner = tune.Tuner(
        tune.with_parameters(train, steps=parsed.steps, chunks=4),
        param_space={
            "learning_rate": tune.loguniform(1e-4, 3e-3),
            "ent_coef": tune.choice([0.0, 0.01]),
            "n_steps": tune.choice([32, 128]),
        },
        tune_config=tune.TuneConfig(
            metric="mean_return",
            mode="max",
            num_samples=parsed.samples,
            scheduler=tune.schedulers.ASHAScheduler(),
        ),
    )
    best = tuner.fit().get_best_result()
    print(f"return {best.metrics['mean_return']:.0f} with {best.config}")


if __name__ == "__main__":
    main()
