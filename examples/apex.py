"""Ape-X DQN: actors push steps with priorities of their own to shards, a learner draws from them.

    python examples/apex.py [STEPS]

After Horgan et al., 2018. The shards, the actors and the learner are processes, here of one
machine; on several, start `sharpwave serve-replay` there and pass the addresses. Actors need the
weights only and import no torch. The rate limit keeps both sides in step: steps are drawn about
thirty times each, however fast actors and learner are.
"""

import multiprocessing
import subprocess
import sys
import time
from typing import Any

import numpy as np

import sharpwave as sw
from sharpwave.distributed.replay import RateLimit
from sharpwave.envs import Stepper

ENV, GAMMA, N_STEP = "CartPole-v1", 0.99, 3
ACTORS, ENVS, CHUNK = 2, 8, 32
RATE = RateLimit(samples_per_insert=32, slack=16_000, min_size=1000)


class Weights:
    """The learner's weights, where actors find them."""

    def __init__(self, context: Any, arrays: Any) -> None:
        self.shapes = [array.shape for array in arrays]
        self.shared = context.Array("f", sum(array.size for array in arrays))

    def publish(self, arrays: Any) -> None:
        """Write those of now."""
        with self.shared.get_lock():
            flat = np.frombuffer(self.shared.get_obj(), np.float32)
            flat[:] = np.concatenate([np.asarray(array).ravel() for array in arrays])

    def read(self) -> list[Any]:
        """Read the last ones."""
        with self.shared.get_lock():
            flat = np.frombuffer(self.shared.get_obj(), np.float32).copy()
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = np.split(flat, ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def q_values(weights: list[Any], obs: Any) -> Any:
    """The values of all actions, [..., n]: layers of ReLU between weights and biases."""
    for i in range(0, len(weights), 2):
        obs = obs @ weights[i].T + weights[i + 1]
        if i + 2 < len(weights):
            obs = np.maximum(obs, 0)
    return obs


def act(number: int, addresses: list[str], weights: Weights) -> None:
    """Step environments, and push chunks of steps with the errors that this actor sees in them."""
    replay = sw.ShardedReplay(addresses, rate=RATE)
    stepper = Stepper(sw.make_vec_env(ENV, ENVS))
    streams = number * ENVS + np.arange(ENVS)
    epsilon = 0.4 ** (1 + 7 * streams / (ACTORS * ENVS - 1))  # each environment has its own
    generator = np.random.default_rng(number)
    obs, _ = stepper.reset(seed=number)
    while True:
        known, rows = weights.read(), []
        for _ in range(CHUNK):
            best = q_values(known, obs).argmax(-1)
            explores = generator.random(ENVS) < epsilon
            actions = np.where(explores, generator.integers(0, 2, ENVS), best)
            step = stepper.step(actions)
            rows.append(
                (obs, actions, step.rewards, step.terminated, step.truncated, step.next_obs)
            )
            obs = step.obs
        before, actions, rewards, terminated, truncated, after = map(
            np.stack, zip(*rows, strict=True)
        )
        next_values = q_values(known, after).max(-1)
        targets = sw.n_step_returns(rewards, next_values, terminated, truncated, N_STEP, GAMMA)
        values = np.take_along_axis(q_values(known, before), actions[..., None], -1)[..., 0]
        columns = {"obs": before, "actions": actions, "rewards": rewards, "next_obs": after}
        columns |= {"terminated": terminated, "truncated": truncated}
        replay.push_batch(
            **{name: column.reshape(-1, *column.shape[2:]) for name, column in columns.items()},
            streams=np.tile(streams, CHUNK),
            priorities=np.abs(targets - values).ravel() + 1e-6,
        )


def learn(addresses: list[str], steps: int) -> None:
    """Draw batches, learn from them and set their priorities, until actors have taken the steps."""
    replay = sw.ShardedReplay(addresses, seed=0, prefetch=2, rate=RATE, weight_norm="batch")
    dqn = sw.DQN(
        ENV,
        n_envs=ACTORS * ENVS,  # those of the actors: the learner itself steps none
        buffer=replay,
        prioritized=True,
        n_step=N_STEP,
        gamma=GAMMA,
        batch_size=128,
        learning_rate=sw.Linear(1e-3),
        tau=0.01,
        hidden=(64, 64),
        seed=0,
    )
    _ = dqn.sampler  # which tells the shards what a step is
    context = multiprocessing.get_context("spawn")
    weights = Weights(context, dqn.learner.acting_state().values())
    weights.publish(dqn.learner.acting_state().values())
    actors = [
        context.Process(target=act, args=(number, addresses, weights), daemon=True)
        for number in range(ACTORS)
    ]
    for actor in actors:
        actor.start()
    while len(replay) < 1000:
        time.sleep(0.1)
    updates, pushed = 0, 0
    while pushed < steps:
        batch = dqn.sample()
        metrics = dqn.learner.update(batch)
        dqn.report(batch, metrics)
        updates += 1
        if updates % 10 == 0:
            weights.publish(dqn.learner.acting_state().values())
            pushed = replay.stats()["pushed"]
            # The learning rate falls; beta stays at 0.4, as in the paper.
            dqn.learner.follow(max(0.0, 1 - pushed / steps))
        if updates % 2500 == 0:
            score = dqn.evaluate(10)
            print(f"{pushed:>8,} steps  {updates:>6,} updates  {score}", flush=True)
    for actor in actors:
        actor.terminate()
        actor.join()
    print(f"after {pushed:,} steps: {dqn.evaluate(10)}")
    stats = replay.stats()
    print(f"steps were drawn {stats['replay_ratio']:.1f} times each")
    replay.close()


def main(steps: int = 60_000) -> None:
    command = [sys.executable, "-m", "sharpwave", "serve-replay", "--port", "0", "--prioritized"]
    command += ["--capacity", "50000"]
    shards = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        learn([shard.stdout.readline().split()[0] for shard in shards], steps)  # type: ignore[union-attr]
    finally:
        for shard in shards:
            shard.terminate()
            shard.communicate()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
