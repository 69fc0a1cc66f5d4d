"""The program of each process in a test of several learners; its argument is the folder of results.

Every case is a function of the folder and of the processes; what it asserts, all of them assert.
`learn_fixed` also runs in the test itself, which is then the one process that has all rows.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sharpwave as sw
from sharpwave.core.ranks import ALONE, Ranks
from sharpwave.core.tree import map_leaves
from sharpwave.envs import environment_state
from sharpwave.learners.batch import OnPolicyBatch
from sharpwave.learners.replay import ReplayBatch
from sharpwave.learners.unrolls import UnrollBatch
from sharpwave.storage.run_folder import RunFolder
from sharpwave.testing.bits import bits

TINY: dict[str, Any] = {"seed": 5, "backend": "torch", "hidden": (16, 16)}
REPLAY = {"n_envs": 4, "batch_size": 16, "learning_starts": 40, "log_interval": 60}


class Sure(sw.SACLearner):
    """SAC whose draws follow from the observations, whichever process has them."""

    def sample(self, obs: Any, masks: Any) -> Any:
        mean, log_std = self.policy(obs)
        noise = (7 * obs[:, :1]).sin().expand_as(mean)
        raw = mean + log_std.exp() * noise
        return raw.tanh(), self.policy.distribution.log_prob_of_noise(raw, log_std, noise)


AGENTS: dict[str, Callable[..., Any]] = {
    "ppo": lambda **options: sw.PPO(
        "CartPole-v1",
        **{"n_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 2, **TINY, **options},
    ),
    "a2c": lambda **options: sw.A2C("CartPole-v1", **{"n_envs": 4, **TINY, **options}),
    "impala": lambda **options: sw.IMPALA(
        "CartPole-v1",
        **{"n_envs": 2, "n_actors": 4, "n_steps": 8, "deterministic": True, **TINY, **options},
    ),
    "appo": lambda **options: sw.APPO(
        "CartPole-v1",
        **{
            "n_envs": 2,
            "n_actors": 4,
            "n_steps": 8,
            "deterministic": True,
            "batch_size": 32,
            "n_epochs": 2,
            "target_update_freq": 2,
            **TINY,
            **options,
        },
    ),
    "sac": lambda **options: sw.SAC("Pendulum-v1", **{**REPLAY, **TINY, **options}),
    "td3": lambda **options: sw.TD3("Pendulum-v1", **{**REPLAY, **TINY, **options}),
    "dqn": lambda **options: sw.DQN("CartPole-v1", **{**REPLAY, **TINY, **options}),
}
"""Agents of each algorithm that has several learners; they divide the same environments."""

FIXED: dict[str, dict[str, Any]] = {
    "ppo": {"target_kl": 0.02, "clip_vloss": True, "max_grad_norm": 0.3, "learning_rate": 1e-2},
    "a2c": {"normalize_advantages": True, "max_grad_norm": 0.2, "normalize_obs": "policy"},
    "impala": {"normalize_advantages": True, "reduction": "sum"},
    "appo": {
        "n_epochs": 3,
        "batch_size": 48,
        "max_grad_norm": 0.3,
        "learning_rate": "adaptive(1e-2)",
    },
    "sac": {"learner": Sure, "max_grad_norm": 0.5},
    "td3": {"target_noise": 0.0, "max_grad_norm": 0.5},
    "dqn": {"max_grad_norm": 0.5, "target_update_freq": 40, "learning_starts": 0},
}
"""Options with which an update is a function of its rows, and of all rows at once."""

ALONE_FOLDER = "alone"
"""Folder of checkpoints that one process wrote."""
STEPS = {"ppo": 192, "a2c": 120, "impala": 192, "appo": 192, "sac": 160, "td3": 160, "dqn": 160}


def bits_of(nest: Any) -> str:
    """A word for all bits of all leaves."""
    return hashlib.sha256(repr(bits(nest)).encode()).hexdigest()


def rollout(generator: np.random.Generator, n: int) -> OnPolicyBatch:
    """Steps that no policy has taken."""
    numbers = generator.normal(size=(n, 8)).astype(np.float32)
    columns = {
        "obs": numbers[:, :4],
        "actions": generator.integers(2, size=n),
        "log_probs": np.float32(-0.7) + numbers[:, 4] / 50,
        "values": numbers[:, 5],
        "advantages": 3 * numbers[:, 6] + 1,
        "returns": numbers[:, 7],
    }
    return OnPolicyBatch.of(columns, torch.as_tensor)


def unrolls(generator: np.random.Generator, n: int) -> UnrollBatch:
    """Unrolls that no policy has made."""
    steps = 6
    numbers = generator.normal(size=(steps, n, 6)).astype(np.float32)
    ended = generator.random((steps, n)) < 0.2
    columns = {
        "obs": numbers[..., :4],
        "actions": generator.integers(2, size=(steps, n)),
        "log_probs": np.float32(-0.7) + numbers[..., 4] / 5,
        "rewards": numbers[..., 5],
        "terminated": ended,
        "truncated": np.zeros_like(ended),
        "last_obs": generator.normal(size=(n, 4)).astype(np.float32),
    }
    return UnrollBatch(**{name: torch.as_tensor(column) for name, column in columns.items()})


def transitions(generator: np.random.Generator, n: int, agent: Any) -> ReplayBatch:
    """Steps of replay that nobody has taken, with weights."""
    n_inputs = agent.observation_space.shape[0]
    numbers = generator.normal(size=(n, 2 * n_inputs + 2)).astype(np.float32)
    actions: Any = generator.integers(2, size=n)
    if hasattr(agent.action_space, "high"):
        actions = generator.uniform(-1, 1, (n, 1)).astype(np.float32)
    columns = (
        numbers[:, :n_inputs],
        actions,
        numbers[:, -1],
        numbers[:, n_inputs : 2 * n_inputs],
        np.full(n, 0.99, np.float32) * (generator.random(n) < 0.9),
    )
    obs, actions, rewards, next_obs, discounts = map(torch.as_tensor, columns)
    weights = torch.as_tensor(generator.random(n).astype(np.float32))
    return ReplayBatch(obs, actions, rewards, next_obs, discounts.float(), weights=weights)


def part(batch: Any, ranks: Ranks, *, axis: int = 0) -> Any:
    """This process's rows of a batch."""
    own = slice(ranks.rank, None, ranks.size)

    def rows(name: str, column: Any) -> Any:
        if column is None:
            return None
        along = 0 if name == "last_obs" else axis
        return map_leaves(lambda leaf: leaf[own] if along == 0 else leaf[:, own], column)

    return type(batch)(**{name: rows(name, column) for name, column in vars(batch).items()})


def learn_fixed(name: str, ranks: Ranks = ALONE, n_updates: int = 6) -> dict[str, Any]:
    """All that learning from fixed rows changes, each process having its part of them."""
    agent = AGENTS[name](**FIXED[name])
    learner, generator = agent.learner, np.random.default_rng(11)
    learner.follow(1.0)
    for _ in range(n_updates):
        if name == "ppo":
            batch = part(rollout(generator, 64), ranks)
            learner.moved_too_far.zero_()
            for rows in torch.arange(len(batch.log_probs)).split(32 // ranks.size):
                learner.step(batch, rows)
        elif name == "a2c":
            learner.update(part(rollout(generator, 32), ranks))
        elif name in ("impala", "appo"):  # of which an update of APPO is one of all its rows
            learner.update(part(unrolls(generator, 8), ranks, axis=1))
        else:
            learner.update(part(transitions(generator, 16, agent), ranks))
    agent.close()
    return learned(agent)


def learned(agent: Any) -> dict[str, Any]:
    """Networks and optimizers, as arrays by name."""
    state = agent.learner.state_dict()
    return {
        f"{kind}.{name}.{key}": np.asarray(array)
        for kind in ("networks", "optimizers")
        for name, arrays in state[kind].items()
        for key, array in arrays.items()
    }


# What the processes do


def share_fixed_rows(folder: Path, ranks: Ranks) -> None:
    """Leave what they learned from fixed rows, for the test to compare."""
    for name in AGENTS:
        found = learn_fixed(name, ranks)
        assert all(bits == bits_of(found) for bits in ranks.gather(bits_of(found))), name
        if ranks.leads:
            np.savez(folder / f"{name}.npz", **found)


def stay_equal_and_resume(folder: Path, ranks: Ranks) -> None:
    """Over a run, a second `train()`, and what goes on from a checkpoint."""
    for name, make in AGENTS.items():
        agent, steps = make(), STEPS[name]
        assert agent.backend == "torch", name
        first = ranks.gather(bits_of(learned(agent)))
        metrics = agent.train(steps)
        now = ranks.gather(bits_of(learned(agent)))
        assert len(set(first)) == len(set(now)) == 1 != len({*first, *now}), name
        assert agent.timesteps == steps == metrics["timesteps"], name
        told = ranks.gather(repr({k: x for k, x in metrics.items() if k != "sps"}))
        assert len(set(told)) == 1, told
        check_apart(name, agent, ranks)
        path = folder / f"{name}.safetensors"
        agent.save(path)
        agent.train(steps)
        resumed = type(agent).from_checkpoint(path)
        resumed.train(steps)
        ends = ranks.gather((bits_of(learned(agent)), bits_of(learned(resumed))))
        assert agent.timesteps == resumed.timesteps == 2 * steps, name
        # A buffer is not in a checkpoint that nobody asks to keep it.
        assert len({end for end, _ in ends}) == len({end for _, end in ends}) == 1, name
        if name not in ("sac", "td3", "dqn"):
            assert all(end == again for end, again in ends), name
        agent.close()
        resumed.close()


def check_apart(name: str, agent: Any, ranks: Ranks, new: int | None = None) -> None:
    """Processes draw other actions in other environments, and other batches.

    Args:
        name: Of the algorithm.
        agent: That of this process.
        ranks: All processes.
        new: Steps of all since the buffers began; the whole run when not given.
    """
    draws = ranks.gather(bits_of(agent.learner.generator.get_state()))
    assert len(set(draws)) == ranks.size, name
    seen = ranks.gather(bits_of(environment_state(agent.env)))
    assert len(set(seen)) == ranks.size, name
    if hasattr(agent.loop, "store"):
        rows = agent.buffer.gather(agent.buffer.indices())
        assert len(set(ranks.gather(bits_of(rows["obs"])))) == ranks.size, name
        assert len(rows["obs"]) == (new or agent.timesteps) // ranks.size, name


def resume_with_replay(folder: Path, ranks: Ranks) -> None:
    """The checkpoint of a run folder goes on bit for bit, with the buffers of all processes."""
    options = {"normalize_obs": True, "prioritized": True}
    whole = AGENTS["dqn"](**options)
    whole.train(120)
    whole.train(280, run_dir=folder / "whole")
    begun = AGENTS["dqn"](**options)
    begun.train(120, run_dir=folder / "parts")
    resumed = AGENTS["dqn"](**options)
    resumed.train(400, run_dir=folder / "parts", resume=True)
    assert resumed.timesteps == 400
    assert bits_of(learned(whole)) == bits_of(learned(resumed))
    for agent in (whole, begun, resumed):
        agent.close()


def merge_statistics(folder: Path, ranks: Ranks) -> None:
    """Statistics of observations and returns are those of the environments of all."""
    for name in ("ppo", "sac"):
        agent = AGENTS[name](normalize_obs=True, normalize_rewards=True)
        agent.train(STEPS[name])
        names = [key for key in agent.normalizer.state_dict() if key.startswith(("obs", "return."))]
        mine = {key: agent.normalizer.state_dict()[key] for key in names}
        assert len(set(ranks.gather(bits_of(mine)))) == 1, name
        counted = int(mine["obs.count"])
        assert counted >= STEPS[name], (name, counted)
        if hasattr(agent.loop, "store"):
            rows = agent.buffer.gather(agent.buffer.indices())
            # What a step led to is what the next one begins with, and counts once.
            shown = np.unique(np.concatenate((rows["obs"], rows["next_obs"])), axis=0)
            every = ranks.gather(shown)
            assert counted == sum(map(len, every))
            np.testing.assert_allclose(mine["obs.mean"], np.concatenate(every).mean(0), atol=1e-6)
        agent.close()


def write_once(folder: Path, ranks: Ranks) -> None:
    """The first process has callbacks, evaluations and the folder; all stop where it says so."""
    told: list[int] = []

    class Tell(sw.Callback):
        def on_step(self, algo: Any) -> None:
            if not told:
                try:
                    algo.save(folder / "never")
                except RuntimeError as error:
                    assert "on_train_batch" in str(error)  # noqa: PT017
                else:
                    raise AssertionError("a process saved alone")

        def on_train_batch(self, algo: Any, step: int) -> bool:
            told.append(step)
            algo.save(folder / f"numbered_{step}.safetensors")
            return step < 192

    callbacks = [Tell(), sw.EvalCallback(eval_freq=128, n_eval_episodes=2)]
    agent = AGENTS["ppo"](anneal_lr=False)
    agent.train(640, run_dir=folder / "run", callbacks=callbacks)
    assert ranks.gather(told) == [[64, 128, 192], *[[]] * (ranks.size - 1)]
    assert agent.timesteps == 192
    assert agent.stop_reason is not None
    assert not (folder / "never").exists()
    ended = sum(ranks.gather(agent.loop.collector.episodes.count))
    rows = RunFolder(folder / "run").episodes()["episode"].tolist()
    assert rows == list(range(1, ended + 1))  # of the environments of all
    again = AGENTS["ppo"](anneal_lr=False)
    again.train(192)
    restored = sw.PPO.from_checkpoint(folder / "numbered_192.safetensors")
    assert bits_of(learned(agent)) == bits_of(learned(restored)) == bits_of(learned(again))


def end_together(folder: Path, ranks: Ranks) -> None:
    """A stop or an error in one process stops all, wherever the others are."""
    for name in ("ppo", "sac", "impala", "appo"):
        agent = AGENTS[name]()
        agent.train(STEPS[name])
        update, is_last = agent.learner.update, ranks.rank == ranks.size - 1

        def stop(batch: Any, agent: Any = agent, update: Any = update, ends: bool = is_last) -> Any:
            if ends:  # as a signal does, in one process
                agent.request_stop("one of them")
            return update(batch)

        agent.learner.update = stop
        agent.train(100_000)
        assert agent.stop_reason == "one of them", name
        assert len(set(ranks.gather(agent.timesteps))) == 1, name
        agent.close()


def take_up_what_one_began(folder: Path, ranks: Ranks) -> None:
    """Weights and counts go on; episodes, buffers and draws are those of each process."""
    for name in AGENTS:
        path = folder.parent / ALONE_FOLDER / f"{name}.safetensors"
        agent = getattr(sw, name.upper()).from_checkpoint(path)
        before, steps = bits_of(learned(agent)), agent.timesteps
        assert steps == STEPS[name], name
        agent.train(STEPS[name])
        assert agent.timesteps == 2 * steps, name
        after = set(ranks.gather(bits_of(learned(agent))))
        assert len(after) == 1 != len({before, *after}), name
        check_apart(name, agent, ranks, new=steps)
        agent.close()


CASES = (
    share_fixed_rows,
    stay_equal_and_resume,
    resume_with_replay,
    merge_statistics,
    write_once,
    end_together,
    take_up_what_one_began,
)


def main(folder: Path) -> None:
    """Run all cases, and leave what went wrong with each."""
    torch.set_num_threads(1)
    ranks = Ranks.join()
    for case in CASES:
        own = folder / case.__name__
        own.mkdir(exist_ok=True)
        wrong = ""
        try:
            case(own, ranks)
        except Exception:
            wrong = traceback.format_exc()
        every = ranks.gather(wrong)
        if ranks.leads:
            (folder / f"{case.__name__}.json").write_text(json.dumps(every))
        if any(every):
            return  # the processes may not be at the same place any more


if __name__ == "__main__":
    main(Path(sys.argv[1]))
