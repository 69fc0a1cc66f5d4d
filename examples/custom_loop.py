"""A training loop of your own around `learner.update`.

    python examples/custom_loop.py [STEPS]

`update(batch)` is the learning rule and nothing else: it knows no environment, buffer, callback or
clock. Everything around it is here, so everything around it can be changed.
"""

import sys

import numpy as np
import torch

import sharpwave as sw
from sharpwave.collect import EpisodeStats
from sharpwave.envs import Stepper
from sharpwave.learners.batch import OnPolicyBatch

N_ENVS, N_STEPS, GAMMA, LAMBDA = 8, 32, 0.98, 0.8


def main(steps: int = 30_000) -> None:
    env = sw.make_vec_env("CartPole-v1", N_ENVS)
    ppo = sw.PPO(env, seed=0, learning_rate=sw.Linear(1e-3), n_epochs=20, ent_coef=0.0)
    episodes = EpisodeStats(N_ENVS)
    stepper = Stepper(env)  # knows what the environment does at the end of an episode
    obs, _ = stepper.reset(seed=0)
    generator = torch.Generator().manual_seed(0)

    taken = 0
    while taken < steps:
        ppo.learner.follow(1 - taken / steps)
        rows = []
        for _ in range(N_STEPS):
            acted = ppo.policy.act(torch.from_numpy(obs), generator=generator)
            step = stepper.step(acted.actions.numpy())
            # What the action led to: the true last observation where an episode ended.
            next_values = ppo.policy.values(torch.from_numpy(step.next_obs)).numpy()
            rows.append((obs, acted, step, next_values))
            episodes.update(step.rewards, step.terminated | step.truncated)
            obs = step.obs
            taken += N_ENVS
        metrics = ppo.learner.update(batch_of(rows))
        if taken % (20 * N_ENVS * N_STEPS) == 0:
            loss = float(metrics["loss"])
            print(f"{taken:>7,} steps  return {episodes.mean_return:6.1f}  loss {loss:7.3f}")
    print(f"after {taken:,} steps: {ppo.evaluate(10, env='CartPole-v1')}")
    env.close()


def batch_of(rows: list) -> OnPolicyBatch:  # type: ignore[type-arg]
    """Time-major columns [T, N, ...], their advantages, and all of it as rows of a batch."""
    obs, acted, steps, next_values = zip(*rows, strict=True)
    values = np.stack([one.values.numpy() for one in acted])
    advantages, returns = sw.gae(
        np.stack([step.rewards for step in steps]).astype(np.float32),
        values,
        next_values=np.stack(next_values),
        terminated=np.stack([step.terminated for step in steps]),
        truncated=np.stack([step.truncated for step in steps]),
        gamma=GAMMA,
        lam=LAMBDA,
    )
    return OnPolicyBatch(
        obs=torch.from_numpy(np.concatenate(obs)),
        actions=torch.cat([one.actions for one in acted]),
        log_probs=torch.cat([one.log_probs for one in acted]),
        values=torch.from_numpy(values.reshape(-1)),
        advantages=torch.from_numpy(advantages.reshape(-1)),
        returns=torch.from_numpy(returns.reshape(-1)),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
