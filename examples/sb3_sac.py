"""SAC of stable-baselines3 on Pendulum, with a replay buffer of sharpwave.

pip install "sharpwave[sb3]"
python examples/sb3_sac.py --steps 6000
"""

import argparse

from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy

from sharpwave.integrations.sb3 import ReplayBuffer


def main() -> None:
    parser = argparse.ArgumentParser(description="SAC on Pendulum-v1")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        replay_buffer_class=ReplayBuffer,
        learning_rate=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        seed=options.seed,
    )
    model.learn(options.steps)
    mean, deviation = evaluate_policy(model, model.get_env(), n_eval_episodes=20)
    print(f"return {mean:.0f} ± {deviation:.0f} after {options.steps} steps")


if __name__ == "__main__":
    main()
