"""Trains PPO on CartPole until it is solved, evaluates it, and leaves a run folder with a report.

Run it with `make demo`.
"""

from rich.console import Console

import sharpwave as sw
from sharpwave.storage.run_folder import new_run_dir

ENV_ID = "CartPole-v1"
SOLVED = 475.0


def main() -> None:
    console = Console()
    run_dir = new_run_dir("ppo", ENV_ID, seed=42)
    agent = sw.PPO.preset(ENV_ID, seed=42)
    console.print(f"PPO on {ENV_ID}: the pole must stay up for {SOLVED:.0f} of 500 steps")
    agent.train(
        callbacks=[
            sw.EvalCallback(eval_freq=5_000, n_eval_episodes=20, stop_at=SOLVED),
            sw.ProgressCallback(),
        ],
        run_dir=run_dir,
    )
    result = agent.evaluate(20)
    verdict = "solved" if result.mean >= SOLVED else "not solved yet"
    console.print(f"{verdict} after {agent.timesteps:,} steps: {result}")
    console.print(f"report: {(run_dir / 'report.html').resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
